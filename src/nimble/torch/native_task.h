#pragma once

#include <array>
#include <vector>

#include "nimble/base/error.h"
#include "nimble/kernels/kernel.h"
#include "nimble/runtime/task_binding.h"
#include "nimble/torch/memory_slot.h"

namespace nimble {

// A part of an op on one of our kernels, with its operands in an instance. `kernel` and the slots
// must outlive it.
class NativeTask {
 public:
  NativeTask(const Kernel& kernel, const Part& part, uint32_t group)
      : kernel_(kernel), part_(part), group_(group) {}

  void add_operand(const MemorySlot& slot, int64_t begin_byte) {
    NIMBLE_ASSERT(operands_.size() < kMostOperands);
    operands_.push_back({&slot, begin_byte});
  }
  void last_operand_is_scratch() { has_scratch_ = true; }
  void use_packed(const std::byte* packed) { packed_ = packed; }
  void fetch_ahead(const FetchAhead& next) { next_ = next; }
  void release_after(MemorySlot& slot) { releases_.push_back(&slot); }
  uint32_t group() const { return group_; }

  void run() const {
    std::array<void*, kMostOperands> pointers;
    for (size_t i = 0; i < operands_.size(); ++i)
      pointers[i] = static_cast<char*>(const_cast<void*>(operands_[i].slot->storage.data())) +
                    operands_[i].begin_byte;
    std::byte* scratch =
        has_scratch_ ? static_cast<std::byte*>(pointers[operands_.size() - 1]) : nullptr;
    kernel_.run({pointers.data(), packed_, scratch, part_, next_});
    for (MemorySlot* slot : releases_)
      if (slot->remaining_uses.fetch_sub(1, std::memory_order_acq_rel) == 1) slot->owner = {};
  }
  TaskBinding binding() {
    return {[](void* task) { static_cast<const NativeTask*>(task)->run(); }, this};
  }

 private:
  static constexpr size_t kMostOperands = 40;
  struct Argument {
    const MemorySlot* slot;
    int64_t begin_byte;
  };

  const Kernel& kernel_;
  Part part_;
  uint32_t group_;
  std::vector<Argument> operands_;
  const std::byte* packed_ = nullptr;
  FetchAhead next_;
  bool has_scratch_ = false;
  std::vector<MemorySlot*> releases_;
};

}  // namespace nimble
