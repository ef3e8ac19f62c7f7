#include "nimble/torch/cuda/streams.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <map>
#include <utility>

namespace nimble {

c10::cuda::CUDAStream own_stream(c10::DeviceIndex device, size_t index) {
  static std::mutex mutex;
  static auto& streams = *new std::map<std::pair<c10::DeviceIndex, size_t>, cudaStream_t>;
  std::lock_guard lock(mutex);
  auto found = streams.find({device, index});
  if (found == streams.end()) {
    const c10::cuda::CUDAGuard guard(device);
    int least = 0;
    int greatest = 0;  // the smaller the number, the greater the priority
    C10_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    const int priority = std::min(least, greatest + static_cast<int>(index));
    cudaStream_t made = nullptr;
    C10_CUDA_CHECK(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, priority));
    found = streams.emplace(std::pair(device, index), made).first;
  }
  return c10::cuda::getStreamFromExternal(found->second, device);
}

std::mutex& own_streams_lock() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

}  // namespace nimble
