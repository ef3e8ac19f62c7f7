#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nimble/kernels/kernel.h"

namespace nimble {

// A kernel and how it was chosen.
struct KernelChoice {
  struct Candidate {
    std::string name;
    double ns = 0;     // of the whole op on one thread; 0: not measured
    double error = 0;  // beside the framework's, if that has the op; too large: it is not taken
  };
  KernelPtr kernel;
  double ns = 0;
  std::vector<Candidate> candidates;  // in the order they were tried
};

// Memory to try kernels on, used again for the next: the system hands out new pages slowly.
class TestMemory {
 public:
  std::byte* get(size_t bytes);  // 64-byte aligned; until the present scope ends

  class Scope {
   public:
    explicit Scope(TestMemory& memory)
        : memory_(memory), block_(memory.block_), used_(memory.used_) {}
    ~Scope() {
      memory_.block_ = block_;
      memory_.used_ = used_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    TestMemory& memory_;
    size_t block_;
    size_t used_;
  };

 private:
  static constexpr size_t kBlockBytes = 16 << 20;
  struct Delete {
    void operator()(std::byte* memory) const;
  };
  struct Block {
    std::unique_ptr<std::byte, Delete> memory;
    size_t bytes = 0;
  };
  std::vector<Block> blocks_;
  size_t block_ = 0;  // that is in use
  size_t used_ = 0;   // of it
};

// Chooses a kernel by measuring its candidates on memory of its own, once for each distinct op.
// Candidates run on one thread; one that can be divided among `workers` is taken to be so. Ours
// must give what the others do, on these shapes: none is taken that does not.
class KernelSelector {
 public:
  using Candidates =
      std::function<std::vector<KernelPtr>(const OpAttributes&, std::span<const TensorDesc>)>;
  // `others` are kernels besides ours.
  explicit KernelSelector(size_t workers = 1, Candidates others = {})
      : workers_(workers), others_(std::move(others)) {}

  const KernelChoice& choose(const OpAttributes& attributes, std::span<const TensorDesc> operands);
  size_t distinct_ops() const { return known_.size(); }

 private:
  KernelChoice measure(const OpAttributes& attributes, std::span<const TensorDesc> operands);

  struct Known {
    OpAttributes attributes;
    std::vector<TensorDesc> operands;  // without their offsets
    KernelChoice choice;
  };

  size_t workers_;
  Candidates others_;
  TestMemory memory_;
  std::deque<Known> known_;  // a program has few distinct ops
};

// The op in plain loops as a kernel: what is taken where there is no other.
KernelPtr plain_loops(const OpAttributes& attributes, std::span<const TensorDesc> operands);

}  // namespace nimble
