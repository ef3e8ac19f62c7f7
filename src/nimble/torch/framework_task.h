#pragma once

#include <ATen/core/stack.h>

#include <string>
#include <vector>

#include "nimble/runtime/task_binding.h"
#include "nimble/torch/call_arguments.h"
#include "nimble/torch/memory_slot.h"
#include "nimble/torch/planned_allocator.h"
#include "nimble/torch/recording.h"

namespace nimble {

// How the results of a call get where the plan wants them; from the best to what always works.
enum class ResultPolicy : uint8_t {
  kOutVariant,         // they are arguments of another overload of the op
  kPlannedAllocation,  // the op allocates them, and its allocation is given the planned address
  kAdoption,           // the op allocates them, and later tasks are pointed to them
};

// How a recorded call is made again.
struct CallBinding {
  c10::OperatorHandle op;  // the recorded op, or its out variant
  ResultPolicy policy = ResultPolicy::kAdoption;
};

// One framework op with its kernel found and its arguments built. Must outlive no slot it uses.
class FrameworkTask {
 public:
  // `tensor_at(slot)` gives the tensor that stands for a recorded view in this instance.
  template <class TensorAt, class SlotAt>
  FrameworkTask(const RecordedCall& call, const CallBinding& binding, const TensorAt& tensor_at,
                const SlotAt& slot_at)
      : op_(binding.op), grad_mode_(call.grad_mode) {
    arguments_ = call.arguments;
    for (const TensorSlot& slot : call.tensors) place_tensor(arguments_, slot, tensor_at(slot));
    for (const LiveSlot& slot : call.live) own(slot);
    for (const ResultSlot& result : call.results) {
      at::Tensor tensor = tensor_at(result);
      if (binding.policy == ResultPolicy::kOutVariant) {
        filled_.push_back(tensor);
        arguments_.emplace_back(std::move(tensor));
        continue;
      }
      if (binding.policy == ResultPolicy::kPlannedAllocation)
        plan_allocation(static_cast<uint32_t>(result.allocation), slot_at(result));
      made_.push_back({result.position, result.element, &slot_at(result), std::move(tensor)});
    }
    resolve_kernel();
  }

  // Numbers that the next runs are given; by live value.
  void set_live(c10::ArrayRef<double> values);
  bool has_live() const { return !live_.empty(); }
  void release_after(MemorySlot& slot) { releases_.push_back(&slot); }
  // Threads that replay have grad mode off, so that only tasks that want it on set it.
  TaskBinding binding() {
    if (grad_mode_) return {run_in_grad_mode, this};
    return {[](void* task) { static_cast<FrameworkTask*>(task)->run(); }, this};
  }

  // Whether the last run left its results in the planned memory and as planned: an out variant may
  // resize them, an op may allocate in another order.
  bool followed_the_plan(const std::vector<TensorDesc>& planned) const;

 private:
  // A result that the op allocates.
  struct Made {
    uint32_t position;
    int32_t element;
    MemorySlot* slot;
    at::Tensor expected;  // same sizes and strides
  };

  void run();
  static void run_in_grad_mode(void* task);
  void own(const LiveSlot& slot);
  void resolve_kernel();
  void plan_allocation(uint32_t index, MemorySlot& slot);
  void call();
  void call_with_planned_allocations();
  void take_results();
  void take(const at::Tensor& result, const Made& place);

  c10::OperatorHandle op_;
  bool grad_mode_;
  const c10::KernelFunction* kernel_ = nullptr;  // none: the dispatcher has to look
  torch::jit::Stack arguments_;
  torch::jit::Stack stack_;
  std::vector<LiveSlot> live_;
  std::vector<size_t> lists_;  // arguments that are passed by reference: each run needs a copy
  std::vector<Made> made_;
  std::vector<PlannedAllocation> planned_;
  std::vector<MemorySlot*> planned_slots_;  // beside planned_
  bool left_the_plan_ = false;
  std::vector<at::Tensor> filled_;
  std::vector<MemorySlot*> releases_;
};

}  // namespace nimble
