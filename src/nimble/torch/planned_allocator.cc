#include "nimble/torch/planned_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "nimble/torch/allocation_log.h"

namespace nimble {
namespace {

// What this thread's running op gets; nothing if `next` is null.
struct Script {
  const PlannedAllocation* next = nullptr;
  const PlannedAllocation* end = nullptr;
  uint32_t seen = 0;
};
thread_local Script script;

// A recording needs to know who allocates while it runs: this thread, or another one behind its
// back.
thread_local std::shared_ptr<AllocationLog> listener;
std::atomic<int> listening_threads = 0;

// What was allocated since some thread began to listen, by whom (null: by a thread that does not).
struct HeardAllocations {
  std::mutex mutex;
  std::unordered_map<const void*, std::shared_ptr<AllocationLog>> by;
  c10::DeleterFnPtr free = nullptr;  // the framework's
};
HeardAllocations& heard() {
  static auto& allocations = *new HeardAllocations;
  return allocations;
}

// False if nobody wants to hear of its end.
bool tell_listener(const void* memory, size_t bytes) {
  if (listener && !listener->allocated(memory, bytes)) return false;
  std::lock_guard lock(heard().mutex);
  heard().by[memory] = listener;
  return true;
}

void tell_and_free(void* memory) {
  tell_of_free(memory);
  heard().free(memory);
}

c10::DataPtr allocate_and_tell(c10::Allocator& behind, size_t bytes) {
  c10::DataPtr memory = behind.allocate(bytes);
  void* address = memory.get();
  if (!tell_listener(address, bytes)) return memory;
  // An allocator that cannot free an address by itself is heard only once.
  if (!listener || !heard().free || memory.get_context() != address) return memory;
  memory.release_context();
  return {address, address, &tell_and_free, c10::kCPU};
}

// The memory is the plan's: nobody frees it.
void keep(void*) {}

class FrontAllocator final : public c10::Allocator {
 public:
  explicit FrontAllocator(c10::Allocator* behind) : behind_(behind) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (script.next && bytes > 0) [[unlikely]] {
      if (void* memory = planned(bytes)) return {memory, nullptr, &keep, c10::kCPU};
    }
    if (bytes > 0 && listening_threads.load(std::memory_order_relaxed) > 0) [[unlikely]]
      return allocate_and_tell(*behind_, bytes);
    return behind_->allocate(bytes);
  }
  // Also for what is allocated raw (oneDNN's scratch): a log must hear of its end.
  c10::DeleterFnPtr raw_deleter() const override { return heard().free ? &tell_and_free : nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    behind_->copy_data(to, from, bytes);
  }

 private:
  static void* planned(size_t bytes) {
    const uint32_t index = script.seen++;
    if (script.next == script.end || script.next->index != index) return nullptr;
    const PlannedAllocation& allocation = *script.next++;
    return allocation.bytes == bytes ? allocation.memory : nullptr;
  }

  c10::Allocator* behind_;
};

}  // namespace

PlannedAllocations::PlannedAllocations(const std::vector<PlannedAllocation>& planned) {
  script = {planned.data(), planned.data() + planned.size(), 0};
}

PlannedAllocations::~PlannedAllocations() {
  script = {};
}

void listen_to_allocations(std::shared_ptr<AllocationLog> log) {
  std::lock_guard lock(heard().mutex);
  listening_threads += static_cast<int>(log != nullptr) - static_cast<int>(listener != nullptr);
  // What this thread heard, or nobody listens to any more, is forgotten: its address may be used
  // again while nobody listens.
  std::erase_if(heard().by, [](const auto& entry) {
    return entry.second == listener || (!entry.second && listening_threads == 0);
  });
  listener = std::move(log);
}

void tell_of_allocation(const void* memory, size_t bytes) {
  if (listening_threads.load(std::memory_order_relaxed) > 0) tell_listener(memory, bytes);
}

void tell_of_free(const void* memory) {
  if (listening_threads.load(std::memory_order_relaxed) == 0) return;
  std::shared_ptr<AllocationLog> log;
  {
    std::lock_guard lock(heard().mutex);
    if (const auto found = heard().by.find(memory); found != heard().by.end()) {
      log = std::move(found->second);
      heard().by.erase(found);
    }
  }
  if (log) log->freed(memory);
}

bool allocated_by_another_thread(const void* memory) {
  std::lock_guard lock(heard().mutex);
  const auto found = heard().by.find(memory);
  return found != heard().by.end() && found->second != listener;
}

void install_planned_allocator() {
  // Never destroyed: tensors keep a pointer to their allocator.
  static const bool installed = [] {
    heard().free = c10::GetCPUAllocator()->raw_deleter();
    c10::SetCPUAllocator(new FrontAllocator(c10::GetCPUAllocator()), UINT8_MAX);
    return true;
  }();
  (void)installed;
}

}  // namespace nimble
