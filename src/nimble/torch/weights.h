#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "nimble/torch/plan.h"

namespace nimble {

// The constants of a plan in the form its kernels want: what was folded, and packed weights. Made
// from the user's parameters, which stay where they are.
class WeightImage {
 public:
  explicit WeightImage(const Plan& plan);
  ~WeightImage();
  WeightImage(const WeightImage&) = delete;
  WeightImage& operator=(const WeightImage&) = delete;

  // Computes everything from the present parameters.
  void fill();

  uint64_t id() const { return id_; }  // never the same for two images of a process
  void* folded(MemoryId memory) const { return folded_[memory.index]; }  // null: not needed
  const std::byte* packed(uint32_t group) const { return packed_[group]; }
  size_t bytes() const { return bytes_; }

 private:
  class Filler;
  struct Free {
    void operator()(std::byte* memory) const;
  };
  using Block = std::unique_ptr<std::byte, Free>;
  static Block allocate(size_t bytes);

  const Plan& plan_;
  const uint64_t id_;
  std::vector<void*> folded_;       // by MemoryId
  std::vector<std::byte*> packed_;  // by group
  std::vector<Block> blocks_;
  size_t bytes_ = 0;
};

// Notices that parameters which an image was made from have changed: by their version counters, and
// by a look at a few of their bytes, as writes through `.data` or NumPy count no version.
class ParameterWatch {
 public:
  ParameterWatch(const Plan& plan, const std::vector<at::Tensor>& named);

  void remember();  // the present state is the known one
  bool changed();   // since it was remembered

 private:
  static constexpr size_t kSamples = 4;
  struct Source {
    const c10::StorageImpl* storage;
    c10::VariableVersion version;
    uint32_t known_version = 0;
    bool has_version = false;
    const void* data = nullptr;
    uint64_t samples[kSamples] = {};
  };
  uint64_t sample(const Source& source, size_t index) const;

  std::vector<Source> sources_;
  std::atomic<size_t> next_sample_ = 0;
};

// The image that new calls use. `current` and `refresh` are called under a lock of the caller.
class Weights {
 public:
  Weights(const Plan& plan, const std::vector<at::Tensor>& named);
  std::shared_ptr<const WeightImage> current() const { return current_; }
  bool stale() { return watch_.changed(); }
  // In place if nobody else holds the image, else a new one.
  void refresh();

 private:
  const Plan& plan_;
  ParameterWatch watch_;
  std::shared_ptr<WeightImage> current_;
};

// Whether a kernel takes this operand from its packed form only.
bool is_packed_operand(const Op& op, size_t operand, const Kernel& kernel);

}  // namespace nimble
