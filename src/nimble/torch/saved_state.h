#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace nimble {

// What a recorded run is about to change and must find its way back: external memory and the
// random generators. Puts it all back when destroyed.
class SavedState {
 public:
  SavedState() { save(at::detail::getDefaultCPUGenerator()); }
  ~SavedState() { put_back(); }
  SavedState(const SavedState&) = delete;
  SavedState& operator=(const SavedState&) = delete;

  // Puts everything back at the end of a scope, and keeps it saved.
  class Checkpoint {
   public:
    explicit Checkpoint(SavedState& state) : state_(state) {}
    ~Checkpoint() { state_.put_back(); }
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
      if (storage.nbytes() >= bytes.size())
        std::memcpy(storage.mutable_data(), bytes.data(), bytes.size());
    for (auto& [generator, state] : generators_) {
      std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

  void save(const c10::Storage& storage) {
    const auto* data = static_cast<const char*>(storage.data());
    storages_.emplace_back(storage, std::vector<char>(data, data + storage.nbytes()));
  }

  // Returns the saved state.
  at::Tensor save(at::Generator generator) {
    for (auto& [known, state] : generators_)
      if (known == generator) return state;
    std::lock_guard lock(generator.mutex());
    return generators_.emplace_back(generator, generator.get_state()).second;
  }

  // Where a tensor looks, not what is there.
  void save_shape(const at::Tensor& tensor) {
    for (auto& [known, was] : shapes_)
      if (known.is_same(tensor)) return;
    shapes_.emplace_back(tensor, tensor.detach());
  }

 private:
  std::vector<std::pair<c10::Storage, std::vector<char>>> storages_;
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
  std::vector<std::pair<at::Tensor, at::Tensor>> shapes_;
};

}  // namespace nimble
