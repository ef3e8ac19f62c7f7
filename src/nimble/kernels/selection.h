#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "nimble/kernels/kernel.h"

namespace nimble {

// A kernel and how it was chosen.
struct KernelChoice {
  struct Candidate {
    std::string name;
    double ns = 0;  // of the whole op on one thread; 0: not measured
  };
  KernelPtr kernel;
  double ns = 0;
  std::vector<Candidate> candidates;  // in the order they were tried
};

// Chooses a kernel by measuring its candidates on memory of its own, once for each distinct op.
class KernelSelector {
 public:
  const KernelChoice& choose(const OpAttributes& attributes, std::span<const TensorDesc> operands);
  size_t distinct_ops() const { return known_.size(); }

 private:
  std::unordered_map<std::string, KernelChoice> known_;  // by attributes and descriptions
};

// The op in plain loops as a kernel: what is taken where there is no other.
KernelPtr plain_loops(const OpAttributes& attributes, std::span<const TensorDesc> operands);

}  // namespace nimble
