#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace nimble {

// Lets an op that allocates its result by itself allocate it in planned memory.
//
// The recorder counts the allocations an op makes and notes which of them became a result. While a
// `PlannedAllocations` is in force on a thread, that allocation gets the planned address; all
// others, and all other threads, go to the framework's allocator as ever. Whether the op did as it
// did when recorded is for the caller to check: its result is at the planned address or not.

class AllocationLog;

struct PlannedAllocation {
  uint32_t index = 0;  // among the op's allocations of more than no bytes
  size_t bytes = 0;
  void* memory = nullptr;
};

class PlannedAllocations {
 public:
  // Sorted by index; must outlive this.
  explicit PlannedAllocations(const std::vector<PlannedAllocation>& planned);
  ~PlannedAllocations();
  PlannedAllocations(const PlannedAllocations&) = delete;
  PlannedAllocations& operator=(const PlannedAllocations&) = delete;
};

// Hears of every allocation on this thread, and of its end, until it is told not to (nullptr).
// `log` is kept alive by the memory it heard of.
void listen_to_allocations(std::shared_ptr<AllocationLog> log);

// For other allocators: tells whoever listens on this thread of a new block, or anybody who heard
// of it of its end.
void tell_of_allocation(const void* memory, size_t bytes);
void tell_of_free(const void* memory);

// Whether another thread allocated this address while some thread was listening.
bool allocated_by_another_thread(const void* memory);

// Puts our allocator in front of the framework's, once per process.
void install_planned_allocator();

}  // namespace nimble
