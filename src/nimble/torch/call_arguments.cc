#include "nimble/torch/call_arguments.h"

#include "nimble/torch/tensor_conversion.h"

namespace nimble {

void place_tensor(torch::jit::Stack& arguments, const TensorSlot& slot, at::Tensor tensor) {
  if (slot.element < 0) {
    arguments[slot.position] = std::move(tensor);
    return;
  }
  c10::List<c10::IValue> list = arguments[slot.position].toList().copy();
  list.set(slot.element, std::move(tensor));
  arguments[slot.position] = std::move(list);
}

void own_live_argument(torch::jit::Stack& arguments, const LiveSlot& slot) {
  c10::IValue& argument = arguments[slot.position];
  if (argument.isList())
    argument = argument.toList().copy();
  else if (argument.isTensor())
    argument = copy_with_strides(argument.toTensor());
}

void set_live_argument(torch::jit::Stack& arguments, const LiveSlot& slot, double value) {
  c10::IValue& argument = arguments[slot.position];
  if (argument.isList())
    argument.toList().set(slot.element, value);
  else if (argument.isTensor())
    *static_cast<double*>(argument.toTensor().mutable_data_ptr()) = value;
  else
    argument = value;
}

}  // namespace nimble
