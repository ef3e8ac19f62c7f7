#pragma once

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAEvent.h>

#include <mutex>

namespace nimble {

// Memory that graphs share, as they never run at the same time.
struct GraphPool {
  explicit GraphPool(c10::MempoolId_t id) : id(id) {}

  const c10::MempoolId_t id;
  std::mutex mutex;           // whoever issues a run holds it
  c10::cuda::CUDAEvent idle;  // the device has ended the last run
};

}  // namespace nimble
