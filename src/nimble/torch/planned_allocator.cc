#include "nimble/torch/planned_allocator.h"

#include <c10/core/CPUAllocator.h>

namespace nimble {
namespace {

// What this thread's running op gets; nothing if `next` is null.
struct Script {
  const PlannedAllocation* next = nullptr;
  const PlannedAllocation* end = nullptr;
  uint32_t seen = 0;
};
thread_local Script script;

// The memory is the plan's: nobody frees it.
void keep(void*) {}

class FrontAllocator final : public c10::Allocator {
 public:
  explicit FrontAllocator(c10::Allocator* behind) : behind_(behind) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (script.next && bytes > 0) [[unlikely]] {
      if (void* memory = planned(bytes)) return {memory, nullptr, &keep, c10::kCPU};
    }
    return behind_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return behind_->raw_deleter(); }
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

void install_planned_allocator() {
  // Never destroyed: tensors keep a pointer to their allocator.
  static const bool installed = [] {
    c10::SetCPUAllocator(new FrontAllocator(c10::GetCPUAllocator()), UINT8_MAX);
    return true;
  }();
  (void)installed;
}

}  // namespace nimble
