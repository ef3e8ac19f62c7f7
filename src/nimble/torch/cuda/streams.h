#pragma once

#include <c10/cuda/CUDAStream.h>

#include <cstddef>
#include <mutex>

namespace nimble {

// Streams of ours, so that nothing of the user's is on them: non-blocking, made when first asked
// for, and never destroyed. The first has the device's greatest priority, each of the next a
// smaller one as long as there are such; kernels that are captured keep it.
c10::cuda::CUDAStream own_stream(c10::DeviceIndex device, size_t index);

// Whoever issues work to those streams holds this.
std::mutex& own_streams_lock();

}  // namespace nimble
