#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "nimble/runtime/large_pages.h"
#include "nimble/torch/plan.h"
#include "nimble/torch/uncounted_writes.h"

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

  const Plan& plan_;
  const uint64_t id_;
  std::vector<void*> folded_;       // by MemoryId
  std::vector<std::byte*> packed_;  // by group
  PageMemory memory_;               // of all
  size_t bytes_ = 0;
};

// The parameters that an image is made from. Notices changes by version counters, by the count of
// fused optimizers' steps, and by a look at a few bytes, as writes through `.data` or NumPy are not
// counted by anybody.
class ParameterWatch {
 public:
  static constexpr size_t kSamples = 4;
  struct State {
    uint32_t version = 0;
    uint32_t uncounted_writes = 0;
    const void* data = nullptr;
    uint64_t samples[kSamples] = {};
  };

  ParameterWatch(const Plan& plan, const std::vector<at::Tensor>& named);

  std::vector<State> states() const;  // of all parameters, now
  // Since then. Looks at one sample of each parameter, another one at every call, or at all.
  bool changed_since(const std::vector<State>& states, bool all_samples) const;

 private:
  struct Source {
    const c10::StorageImpl* storage;
    c10::VariableVersion version;
    bool has_version = false;
    WriteCounter uncounted_writes;
    bool on_device = false;
  };
  static uint64_t sample(const c10::StorageImpl& storage, size_t index);
  // One of each parameter that is not in the host's memory. Waits for the current stream.
  std::vector<uint64_t> device_samples(size_t index) const;

  std::vector<Source> sources_;
  std::vector<at::Tensor> device_bytes_[kSamples];  // what is looked at, by source on a device
  mutable std::atomic<size_t> next_sample_ = 0;
};

// The image that new calls use. `current` and `refresh` are called under a lock of the caller.
class Weights {
 public:
  // An image and the parameters' state that it was made from.
  struct Version {
    WeightImage image;
    std::vector<ParameterWatch::State> parameters;
    explicit Version(const Plan& plan) : image(plan) {}
  };

  Weights(const Plan& plan, const std::vector<at::Tensor>& named);
  std::shared_ptr<const Version> current() const { return current_; }
  bool is_stale(const Version& version) const {
    return watch_.changed_since(version.parameters, /*all_samples=*/false);
  }
  // If it is stale: made again, in place if nobody else holds the current version.
  void refresh();

 private:
  void fill(Version& version) const;

  const Plan& plan_;
  ParameterWatch watch_;
  std::shared_ptr<Version> current_;
};

// Whether a kernel takes this operand from its packed form only.
bool is_packed_operand(const Op& op, size_t operand, const Kernel& kernel);

}  // namespace nimble
