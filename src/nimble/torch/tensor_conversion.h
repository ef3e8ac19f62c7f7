#pragma once

#include <ATen/ATen.h>

#include <string>

#include "nimble/base/tensor_desc.h"

namespace nimble {

// Between the framework's tensors and our plain descriptions.
TensorDesc describe(const at::Tensor& tensor);

// A tensor that looks at `storage` as `desc` says. Not a view for autograd.
at::Tensor make_tensor(const TensorDesc& desc, c10::Storage storage);

// Whether a tensor is a plain strided one on the CPU, or on CUDA if that was built; why not, or
// empty.
bool is_plain(const at::Tensor& tensor);
std::string why_not_plain(const at::Tensor& tensor);

// A copy in memory of its own, with the same strides if no two elements share an address.
at::Tensor copy_with_strides(const at::Tensor& tensor);

// All of a storage, as bytes.
at::Tensor bytes_of_storage(const c10::Storage& storage);

}  // namespace nimble
