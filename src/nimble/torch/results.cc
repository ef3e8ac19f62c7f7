#include "nimble/torch/results.h"

#include "nimble/torch/tensor_conversion.h"

namespace nimble {
namespace {

at::Tensor collect(const Plan& plan, const Port& port, bool is_whole_tensor,
                   c10::ArrayRef<at::Tensor> inputs,
                   const std::function<c10::Storage(MemoryId)>& storage_of) {
  const TensorDesc& desc = plan.graph.views[port.view.index].desc;
  const Memory& memory = plan.graph.memories[port.memory.index];
  if (memory.role == Role::kInput) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (plan.graph.inputs[i].memory != port.memory) continue;
      if (is_whole_tensor) return inputs[i];
      // All of it, in another tensor: with the strides that it has now.
      if (port.view == plan.graph.inputs[i].view && !plan.recording.input_reshaped[i])
        return make_tensor(describe(inputs[i]), inputs[i].storage());
      TensorDesc moved = desc;
      moved.offset += inputs[i].storage_offset() * inputs[i].element_size() / desc.dtype.bytes;
      return make_tensor(moved, inputs[i].storage());
    }
  }
  if (memory.role == Role::kExternal) {
    const size_t buffer = memory.buffer.index;
    return is_whole_tensor ? plan.recording.external_tensors[buffer]
                           : make_tensor(desc, plan.recording.storages[buffer]);
  }
  return make_tensor(desc, storage_of(port.memory));
}

}  // namespace

std::vector<at::Tensor> collect_results(const Plan& plan, c10::ArrayRef<at::Tensor> inputs,
                                        const std::function<c10::Storage(MemoryId)>& storage_of) {
  const Recording& recording = plan.recording;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (recording.input_is_written[i] && !inputs[i].is_inference())
      inputs[i].unsafeGetTensorImpl()->bump_version();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& shape = recording.input_reshaped[i];
    if (!shape) continue;
    inputs[i].unsafeGetTensorImpl()->set_sizes_and_strides(
        shape->sizes, shape->strides, shape->offset + inputs[i].storage_offset());
  }
  for (const at::Tensor& tensor : recording.written_externals)
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  std::vector<at::Tensor> outputs;
  const auto& ports = plan.graph.outputs;
  outputs.reserve(ports.size());
  for (size_t i = 0; i < ports.size(); ++i) {
    // The same tensor twice stays the same tensor.
    size_t first = 0;
    while (ports[first].view != ports[i].view) ++first;
    const bool whole = recording.output_is_whole_tensor[i];
    if (recording.output_is_whole_tensor[first] != whole) first = i;
    outputs.push_back(first < i ? outputs[first]
                                : collect(plan, ports[i], whole, inputs, storage_of));
  }
  return outputs;
}

}  // namespace nimble
