#pragma once

#include <ATen/core/stack.h>

#include <string>
#include <vector>

#include "nimble/runtime/task_binding.h"
#include "nimble/torch/memory_slot.h"
#include "nimble/torch/recording.h"

namespace nimble {

// How a recorded call is made again.
struct CallBinding {
  c10::OperatorHandle op;          // the recorded op, or its out variant
  bool writes_into_plan = false;   // the results are arguments
};

// One framework op with its kernel found and its arguments built. Must outlive no slot it uses.
class FrameworkTask {
 public:
  // `tensor_at(slot)` gives the tensor that stands for a recorded view in this instance.
  template <class TensorAt, class SlotAt>
  FrameworkTask(const RecordedCall& call, const CallBinding& binding, const TensorAt& tensor_at,
                const SlotAt& slot_at)
      : op_(binding.op) {
    arguments_ = call.arguments;
    for (const TensorSlot& slot : call.tensors) place(slot, tensor_at(slot));
    for (const TensorSlot& result : call.results) {
      at::Tensor tensor = tensor_at(result);
      if (binding.writes_into_plan) {
        filled_.push_back(tensor);
        arguments_.emplace_back(std::move(tensor));
      } else {
        adopted_.push_back({result.position, result.element, &slot_at(result), std::move(tensor)});
      }
    }
    resolve_kernel();
  }

  void run();
  void release_after(MemorySlot& slot) { releases_.push_back(&slot); }
  TaskBinding binding() {
    return {[](void* task) { static_cast<FrameworkTask*>(task)->run(); }, this};
  }

  // Whether the last run left the planned results as planned; an out variant may resize them.
  bool results_kept_their_layout(const std::vector<TensorDesc>& planned) const;

 private:
  struct Adopted {
    uint32_t position;
    int32_t element;
    MemorySlot* slot;
    at::Tensor expected;  // same sizes and strides
  };

  void place(const TensorSlot& slot, at::Tensor tensor);
  void resolve_kernel();
  void adopt_results();
  static void adopt(const at::Tensor& result, const Adopted& place, const c10::OperatorHandle& op);

  c10::OperatorHandle op_;
  const c10::KernelFunction* kernel_ = nullptr;  // none: the dispatcher has to look
  torch::jit::Stack arguments_;
  torch::jit::Stack stack_;
  std::vector<Adopted> adopted_;
  std::vector<at::Tensor> filled_;
  std::vector<MemorySlot*> releases_;
};

}  // namespace nimble
