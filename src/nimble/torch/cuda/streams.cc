#include "nimble/torch/cuda/streams.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <map>
#include <utility>

namespace nimble {

c10::cuda::CUDAStream own_stream(c10::DeviceIndex device, size_t index) {
  static std::mutex mutex;
  static auto& streams = *new std::map<std::pair<c10::DeviceIndex, size_t>, cudaStream_t>;
  std::lock_guard lock(mutex);
  auto [found, is_new] = streams.try_emplace({device, index}, nullptr);
  if (is_new) {
    const c10::cuda::CUDAGuard guard(device);
    const cudaError_t error = cudaStreamCreateWithFlags(&found->second, cudaStreamNonBlocking);
    if (error != cudaSuccess) streams.erase(found);
    C10_CUDA_CHECK(error);
  }
  return c10::cuda::getStreamFromExternal(found->second, device);
}

std::mutex& own_streams_lock() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

}  // namespace nimble
