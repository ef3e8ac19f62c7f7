#include "nimble/torch/cuda/allocations.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include "nimble/torch/cuda.h"
#include "nimble/torch/planned_allocator.h"

namespace nimble {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

thread_local HeardBlocks* heard = nullptr;

// Called by the allocator, with its lock held.
void hear(const allocator::TraceEntry& entry) {
  const auto* address = reinterpret_cast<const void*>(entry.addr_);
  switch (entry.action_) {
    case allocator::TraceEntry::ALLOC:
      tell_of_allocation(address, entry.size_);
      if (heard) heard->add({address, entry.size_});
      break;
    case allocator::TraceEntry::FREE_REQUESTED:
      tell_of_free(address);
      break;
    default:
      break;
  }
}

}  // namespace

HeardBlocks::HeardBlocks() {
  heard = this;
}

HeardBlocks::~HeardBlocks() {
  heard = nullptr;
}

bool listen_to_cuda_allocations() {
  if (!allocator::get()->initialized()) return false;
  // There is no way to stop hearing.
  static const bool attached = [] {
    allocator::attachAllocatorTraceTracker(hear);
    return true;
  }();
  return attached;
}

}  // namespace nimble
