#pragma once

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAEvent.h>

#include <map>
#include <memory>
#include <mutex>

#include "nimble/torch/nimble.h"

namespace nimble {

// Memory of one device that graphs share, as they never run at the same time.
class GraphPool {
 public:
  explicit GraphPool(c10::DeviceIndex device);
  ~GraphPool();
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  c10::MempoolId_t id() const { return id_; }
  size_t bytes() const;

  std::mutex mutex;           // whoever issues a run holds it
  c10::cuda::CUDAEvent idle;  // the device has ended the last run

 private:
  const c10::DeviceIndex device_;
  const c10::MempoolId_t id_;
};

// A pool for each device.
class GraphMemory {
 public:
  std::shared_ptr<GraphPool> pool_of(c10::DeviceIndex device);

 private:
  std::mutex mutex_;
  std::map<c10::DeviceIndex, std::shared_ptr<GraphPool>> pools_;
};

}  // namespace nimble
