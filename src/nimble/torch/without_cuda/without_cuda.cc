#include "nimble/base/error.h"
#include "nimble/torch/cuda.h"

namespace nimble {

bool cuda_is_built() {
  return false;
}

std::string why_no_cuda() {
  return "this Nimble was built without CUDA: install it again beside a PyTorch that has CUDA "
         "(pip install . --config-settings=cmake.define.NIMBLE_CUDA=ON says what is missing), or "
         "move the model and its inputs to the CPU";
}

std::shared_ptr<GraphMemory> make_graph_memory() {
  return nullptr;
}

bool listen_to_cuda_allocations() {
  return false;
}

std::unique_ptr<DeviceReplay> capture_on_cuda(const CudaProgram&) {
  throw UserError(why_no_cuda());
}

double device_time_us(const std::function<void()>&) {
  throw UserError(why_no_cuda());
}

}  // namespace nimble
