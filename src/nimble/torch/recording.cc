#include "nimble/torch/recording.h"

namespace nimble {

void Recording::release_tensors() {
  outputs.clear();
  std::vector<at::Tensor> handed_out(external_tensors.size());
  for (size_t i = 0; i < trace.outputs.size(); ++i) {
    const size_t buffer = trace.views[trace.outputs[i].index].buffer.index;
    if (output_is_whole_tensor[i]) handed_out[buffer] = external_tensors[buffer];
  }
  external_tensors = std::move(handed_out);
}

}  // namespace nimble
