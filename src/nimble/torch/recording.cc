#include "nimble/torch/recording.h"

#include "nimble/torch/tensor_conversion.h"

namespace nimble {

std::vector<at::Tensor> written_tensors(const Recording& recording,
                                        const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (recording.input_is_written[i]) written.push_back(inputs[i].detach());
  for (const at::Tensor& tensor : recording.written_externals) {
    TensorDesc whole = describe(tensor);
    whole.offset = 0;
    whole.sizes = {static_cast<int64_t>(tensor.storage().nbytes()) / whole.dtype.bytes};
    whole.strides = {1};
    written.push_back(make_tensor(whole, tensor.storage()));
  }
  return written;
}

void Recording::release_tensors() {
  outputs.clear();
  written.clear();
  std::vector<at::Tensor> handed_out(external_tensors.size());
  for (size_t i = 0; i < trace.outputs.size(); ++i) {
    const size_t buffer = trace.views[trace.outputs[i].index].buffer.index;
    if (output_is_whole_tensor[i]) handed_out[buffer] = external_tensors[buffer];
  }
  external_tensors = std::move(handed_out);
}

}  // namespace nimble
