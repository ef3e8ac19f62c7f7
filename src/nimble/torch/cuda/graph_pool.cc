#include "nimble/torch/cuda/graph_pool.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>

namespace nimble {

namespace allocator = c10::cuda::CUDACachingAllocator;

// Held in both allocators: a pool that no graph uses is gone, and its id cannot be used again.
GraphPool::GraphPool(c10::DeviceIndex device)
    : device_(device), id_(at::cuda::graph_pool_handle()) {
  allocator::createOrIncrefPool(device_, id_);
  at::HostAllocator* host = at::getHostAllocator(at::kCUDA);
  host->begin_allocate_to_pool(id_, [](c10::Stream) { return false; });
  host->end_allocate_to_pool(id_);
}

GraphPool::~GraphPool() {
  try {
    idle.synchronize();
  } catch (const c10::Error&) {
    // The device failed, or the process ends: nothing runs any more.
  }
  allocator::releasePool(device_, id_);
  at::getHostAllocator(at::kCUDA)->release_pool(id_);
}

size_t GraphPool::bytes() const {
  size_t bytes = 0;
  for (const auto& segment : allocator::snapshot(id_, /*include_traces=*/false).segments)
    bytes += segment.total_size;
  return bytes;
}

std::shared_ptr<GraphPool> GraphMemory::pool_of(c10::DeviceIndex device) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<GraphPool>& pool = pools_[device];
  if (!pool) pool = std::make_shared<GraphPool>(device);
  return pool;
}

std::shared_ptr<GraphMemory> make_graph_memory() {
  return std::make_shared<GraphMemory>();
}

}  // namespace nimble
