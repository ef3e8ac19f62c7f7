// Handles of the fake cuDNN.
#pragma once

#include <cudnn.h>

#include "state.h"

namespace fake_dnn {
struct Handle {
  cudaStream_t stream = nullptr;
};
Handle* find(cudnnHandle_t handle);  // null if there is none
cudnnStatus_t record(cudnnHandle_t handle, const char* name);

// Enough for tensors and filters; other kinds of descriptor are empty ones of these.
struct Descriptor {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int> sizes, strides;
  size_t bytes() const;
};

template <class DescriptorHandle>
Descriptor* get(DescriptorHandle handle) {
  return reinterpret_cast<Descriptor*>(handle);
}
template <class DescriptorHandle>
cudnnStatus_t make(DescriptorHandle* out) {
  *out = reinterpret_cast<DescriptorHandle>(std::make_unique<Descriptor>().release());
  return CUDNN_STATUS_SUCCESS;
}
template <class DescriptorHandle>
cudnnStatus_t destroy(DescriptorHandle handle) {
  std::unique_ptr<Descriptor> owner(get(handle));
  return CUDNN_STATUS_SUCCESS;
}
size_t size_of(cudnnDataType_t type);
}  // namespace fake_dnn
