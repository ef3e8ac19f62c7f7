#include "nimble/torch/cuda/issue.h"

#include "nimble/torch/call_arguments.h"

namespace nimble {

void issue(const Plan& plan, const Op& op, ProgramMemory& memory, c10::ArrayRef<double> live) {
  const RecordedCall& call = plan.recording.calls[op.call.index];
  torch::jit::Stack stack = call.arguments;
  for (const TensorSlot& slot : call.tensors)
    place_tensor(stack, slot, memory.tensor(op, slot.view));
  for (const LiveSlot& slot : call.live) own_live_argument(stack, slot);
  for (const LiveSlot& slot : call.live) set_live_argument(stack, slot, live[slot.value]);
  const at::AutoGradMode grad_mode(call.grad_mode);
  call.op.callBoxed(stack);
  for (const ResultSlot& slot : call.results) {
    const c10::IValue& result = stack[slot.position];
    memory.take(op, slot,
                slot.element < 0 ? result.toTensor() : result.toListRef()[slot.element].toTensor());
  }
}

}  // namespace nimble
