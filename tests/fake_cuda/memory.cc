// Memory: the device's is the host's. Pages that nobody touches cost nothing.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "state.h"

using namespace fake_cuda;

namespace {
// Blocks lie on pages of their own, so that an overrun of a copy is seen. With the lock held.
void* map_block(size_t bytes, Block::Kind kind) {
  void* memory = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  State& s = state();
  s.blocks[reinterpret_cast<uintptr_t>(memory)] = {bytes, kind};
  if (kind == Block::kPinned) {
    s.counters.pinned_bytes += int64_t(bytes);
  } else {
    s.counters.device_bytes += int64_t(bytes);
    ++s.counters.device_blocks;
  }
  return memory;
}

bool unmap_block(void* memory, bool pinned) {
  State& s = state();
  auto found = s.blocks.find(reinterpret_cast<uintptr_t>(memory));
  if (found == s.blocks.end() || (found->second.kind == Block::kPinned) != pinned) return false;
  size_t bytes = found->second.bytes;
  if (pinned) {
    s.counters.pinned_bytes -= int64_t(bytes);
  } else {
    s.counters.device_bytes -= int64_t(bytes);
    --s.counters.device_blocks;
  }
  s.blocks.erase(found);
  munmap(memory, std::max<size_t>(bytes, 1));
  return true;
}

const std::pair<const uintptr_t, Block>* find_block(const void* pointer) {
  State& s = state();
  auto address = reinterpret_cast<uintptr_t>(pointer);
  auto after = s.blocks.upper_bound(address);
  if (after == s.blocks.begin()) return nullptr;
  auto& entry = *std::prev(after);
  return address < entry.first + std::max<size_t>(entry.second.bytes, 1) ? &entry : nullptr;
}

void trace(void* memory, size_t bytes, bool is_free) {
  State& s = state();
  s.allocations.push_back(
      {reinterpret_cast<uint64_t>(memory), bytes, is_free, int32_t(s.counters.captured_nodes)});
}

cudaError_t allocate(void** memory, size_t bytes, Block::Kind kind) {
  State& s = state();
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (kind != Block::kPinned) {
    if (s.malloc_fault.strikes()) return cudaErrorMemoryAllocation;
    if (uint64_t(s.counters.device_bytes) + bytes > s.memory_bytes)
      return cudaErrorMemoryAllocation;
  }
  *memory = map_block(bytes, kind);
  if (!*memory) return cudaErrorMemoryAllocation;
  if (kind != Block::kPinned) trace(*memory, bytes, false);
  return cudaSuccess;
}

cudaError_t deallocate(void* memory, bool pinned) {
  if (!memory) return cudaSuccess;
  auto* block = find_block(memory);
  size_t bytes = block ? block->second.bytes : 0;
  if (!unmap_block(memory, pinned)) return cudaErrorInvalidValue;
  if (!pinned) trace(memory, bytes, true);
  return cudaSuccess;
}

// A call that waits for the device, on the legacy stream.
cudaError_t begin_synchronous() {
  std::lock_guard guard(state().lock);
  if (auto error = check_unsafe_call()) return error;
  if (auto error = check_legacy_stream()) return error;
  return take_later_error();
}

fake_cuda_range range(const void* memory, size_t bytes, bool writes) {
  return {reinterpret_cast<uint64_t>(memory), bytes, writes};
}

// Whether copies and fills leave this memory as it is.
bool stays_blank(const void* memory) {
  State& s = state();
  std::lock_guard guard(s.lock);
  auto* block = s.blank ? find_block(memory) : nullptr;
  return block && block->second.kind == Block::kDevice;
}

// Copies from or to memory that is not pinned cannot be captured.
cudaError_t check_pageable(cudaStream_t handle, const void* memory) {
  State& s = state();
  std::lock_guard guard(s.lock);
  Stream* stream = find_stream(handle);
  if (!stream || !stream->capture || find_block(memory)) return cudaSuccess;
  invalidate(*stream->capture);
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                      size_t height, cudaStream_t stream) {
  for (const void* memory : {static_cast<const void*>(to), from})
    if (auto error = check_pageable(stream, memory)) return result(error);
  auto work = [=] {
    if (stays_blank(to)) return;
    for (size_t row = 0; row < height; ++row)
      std::memmove(static_cast<char*>(to) + row * to_pitch,
                   static_cast<const char*>(from) + row * from_pitch, width);
  };
  auto extent = [&](size_t pitch) { return height ? (height - 1) * pitch + width : 0; };
  return enqueue(stream, FAKE_CUDA_MEMCPY, "memcpy", work,
                 {range(from, extent(from_pitch), false), range(to, extent(to_pitch), true)});
}
}  // namespace

FAKE_EXPORT cudaError_t cudaMalloc(void** memory, size_t bytes) {
  std::lock_guard guard(state().lock);
  if (auto error = check_unsafe_call()) return result(error);
  return result(allocate(memory, bytes, Block::kDevice));
}
FAKE_EXPORT cudaError_t cudaMallocManaged(void** memory, size_t bytes, unsigned) {
  std::lock_guard guard(state().lock);
  if (auto error = check_unsafe_call()) return result(error);
  return result(allocate(memory, bytes, Block::kManaged));
}
FAKE_EXPORT cudaError_t cudaFree(void* memory) {
  std::lock_guard guard(state().lock);
  if (auto error = check_unsafe_call()) return result(error);
  return result(deallocate(memory, false));
}
FAKE_EXPORT cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  std::lock_guard guard(state().lock);
  if (auto error = check_unsafe_call()) return result(error);
  return result(allocate(memory, bytes, Block::kPinned));
}
FAKE_EXPORT cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return cudaHostAlloc(memory, bytes, 0);
}
FAKE_EXPORT cudaError_t cudaFreeHost(void* memory) {
  std::lock_guard guard(state().lock);
  if (auto error = check_unsafe_call()) return result(error);
  return result(deallocate(memory, true));
}
FAKE_EXPORT cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  std::lock_guard guard(state().lock);
  state().blocks[reinterpret_cast<uintptr_t>(memory)] = {bytes, Block::kRegistered};
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaHostUnregister(void* memory) {
  std::lock_guard guard(state().lock);
  state().blocks.erase(reinterpret_cast<uintptr_t>(memory));
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  {
    std::lock_guard guard(state().lock);
    if (auto error = allocate(memory, bytes, Block::kDevice)) return result(error);
  }
  return enqueue(stream, FAKE_CUDA_ALLOC, "malloc", {}, {range(*memory, bytes, true)});
}
FAKE_EXPORT cudaError_t cudaFreeAsync(void* memory, cudaStream_t handle) {
  State& s = state();
  {
    std::lock_guard guard(s.lock);
    Stream* stream = find_stream(handle);
    // Of a captured graph, memory stays: the graph may be launched again.
    if (stream && !stream->capture) return result(deallocate(memory, false));
  }
  return enqueue(handle, FAKE_CUDA_FREE, "free", {}, {range(memory, 1, true)});
}

FAKE_EXPORT cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  State& s = state();
  std::lock_guard guard(s.lock);
  *total = s.memory_bytes;
  auto used = uint64_t(s.counters.device_bytes);
  *free = used < s.memory_bytes ? s.memory_bytes - used : 0;
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  std::lock_guard guard(state().lock);
  *out = {};
  out->hostPointer = const_cast<void*>(pointer);
  auto* block = find_block(pointer);
  if (!block) {
    out->type = cudaMemoryTypeUnregistered;
    out->device = -2;
    return cudaSuccess;
  }
  out->devicePointer = const_cast<void*>(pointer);
  Block::Kind kind = block->second.kind;
  out->type = kind == Block::kDevice    ? cudaMemoryTypeDevice
              : kind == Block::kManaged ? cudaMemoryTypeManaged
                                        : cudaMemoryTypeHost;
  if (kind == Block::kDevice) out->hostPointer = nullptr;
  return cudaSuccess;
}

// The start and size of the allocation that an address lies in, for the driver's side.
FAKE_EXPORT int fake_cuda_address_range(uint64_t* start, size_t* bytes, uint64_t address) {
  std::lock_guard guard(state().lock);
  auto* block = find_block(reinterpret_cast<const void*>(address));
  if (!block) return 0;
  *start = block->first;
  *bytes = block->second.bytes;
  return 1;
}

FAKE_EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                        cudaStream_t stream) {
  return copy_rows(to, bytes, from, bytes, bytes, 1, stream);
}
FAKE_EXPORT cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                            cudaStream_t stream) {
  return copy_rows(to, bytes, from, bytes, bytes, 1, stream);
}
FAKE_EXPORT cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                                          size_t from_pitch, size_t width, size_t height,
                                          cudaMemcpyKind, cudaStream_t stream) {
  return copy_rows(to, to_pitch, from, from_pitch, width, height, stream);
}
FAKE_EXPORT cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (auto error = begin_synchronous()) return result(error);
  return copy_rows(to, bytes, from, bytes, bytes, 1, nullptr);
}

FAKE_EXPORT cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  auto work = [=] {
    if (!stays_blank(to)) std::memset(to, value, bytes);
  };
  return enqueue(stream, FAKE_CUDA_MEMSET, "memset", work, {range(to, bytes, true)});
}
FAKE_EXPORT cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  if (auto error = begin_synchronous()) return result(error);
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
