#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <mutex>
#include <utility>
#include <vector>

#include "nimble/base/error.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {

// What a recorded run is about to change and must find its way back: external memory and the
// random generators. Puts it all back when destroyed.
class SavedState {
 public:
  SavedState() { save(at::detail::getDefaultCPUGenerator()); }
  ~SavedState() { put_back_if_possible(); }
  SavedState(const SavedState&) = delete;
  SavedState& operator=(const SavedState&) = delete;

  // Puts everything back at the end of a scope, and keeps it saved.
  class Checkpoint {
   public:
    explicit Checkpoint(SavedState& state) : state_(state) {}
    ~Checkpoint() { state_.put_back_if_possible(); }
    Checkpoint(const Checkpoint&) = delete;
    Checkpoint& operator=(const Checkpoint&) = delete;

   private:
    SavedState& state_;
  };

  void put_back() {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (auto& [tensor, was] : shapes_)
      tensor.set_(was.storage(), was.storage_offset(), was.sizes(), was.strides());
    for (auto& [storage, bytes] : storages_)
      if (storage.nbytes() >= bytes.nbytes())
        bytes_of_storage(storage).narrow(0, 0, bytes.numel()).copy_(bytes);
    for (auto& [generator, state] : generators_) {
      std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

  void save(const c10::Storage& storage) {
    storages_.emplace_back(storage, bytes_of_storage(storage).clone());
  }

  // Returns the saved state.
  at::Tensor save(at::Generator generator) {
    for (auto& [known, state] : generators_)
      if (known == generator) return state;
    std::lock_guard lock(generator.mutex());
    return generators_.emplace_back(generator, generator.get_state()).second;
  }

  // A tensor as it was saved: it looks at what is kept here. Its storage must have been saved.
  at::Tensor as_saved(const at::Tensor& tensor) const {
    for (const auto& [storage, bytes] : storages_)
      if (storage.is_alias_of(tensor.storage()))
        return make_tensor(describe(tensor), bytes.storage());
    NIMBLE_ASSERT(false, "not saved");
  }

  // Where a tensor looks, not what is there.
  void save_shape(const at::Tensor& tensor) {
    for (auto& [known, was] : shapes_)
      if (known.is_same(tensor)) return;
    shapes_.emplace_back(tensor, tensor.detach());
  }

 private:
  // A device may fail for good; then nothing of it can be written any more.
  void put_back_if_possible() noexcept {
    try {
      put_back();
    } catch (const c10::Error& error) {
      TORCH_WARN("cannot put back what a run changed: ", error.what_without_backtrace());
    }
  }

  std::vector<std::pair<c10::Storage, at::Tensor>> storages_;  // with their bytes
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
  std::vector<std::pair<at::Tensor, at::Tensor>> shapes_;
};

}  // namespace nimble
