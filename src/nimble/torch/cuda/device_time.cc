#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

#include "nimble/torch/cuda.h"

namespace nimble {

double device_time_us(const std::function<void()>& work) {
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  c10::cuda::CUDAEvent begin(cudaEventDefault);
  c10::cuda::CUDAEvent end(cudaEventDefault);
  stream.synchronize();
  begin.record(stream);
  work();
  end.record(stream);
  end.synchronize();
  return 1e3 * begin.elapsed_time(end);
}

}  // namespace nimble
