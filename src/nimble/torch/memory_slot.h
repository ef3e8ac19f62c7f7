#pragma once

#include <ATen/ATen.h>

#include <atomic>

namespace nimble {

// A memory of the plan in one instance: the storage that the tasks' tensors look at. The tensors
// are made once; to bind other memory is to change the storage's pointer.
struct MemorySlot {
  c10::Storage storage;
  // What keeps the bytes alive where they are not the arena's: a result the framework allocated.
  c10::Storage owner;
  // Tasks of this replay that still need an adopted result; the last one frees it.
  std::atomic<int> remaining_uses = 0;
  int uses_per_replay = 0;
  bool released_after_last_use = false;
  void* home = nullptr;  // its place in the arena, if it has one

  void bind(void* memory) {
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(memory, at::kCPU));
  }
};

// A storage of that many bytes that owns nothing and points nowhere yet.
inline c10::Storage unbound_storage(size_t bytes, c10::Device device = at::kCPU) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, at::DataPtr(nullptr, device), nullptr, false));
}

}  // namespace nimble
