#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "nimble/base/tensor_desc.h"

// How the families' cases are written down.
namespace nimble::cases {

inline DType float32() {
  return {6, 4, "float32"};
}
inline DType int64() {
  return {4, 8, "int64"};
}
inline DType int32() {
  return {3, 4, "int32"};
}

// Row-major.
inline TensorDesc dense(std::vector<int64_t> sizes, const DType& dtype = float32()) {
  TensorDesc desc{.dtype = dtype, .sizes = std::move(sizes), .strides = {}};
  desc.strides.resize(desc.sizes.size());
  int64_t stride = 1;
  for (size_t d = desc.sizes.size(); d-- > 0; stride *= desc.sizes[d]) desc.strides[d] = stride;
  return desc;
}

// [n, c, h, w] with channels last; pixels `pixel_stride` apart (0: dense).
inline TensorDesc image(int64_t n, int64_t c, int64_t h, int64_t w, int64_t pixel_stride = 0) {
  const int64_t pixel = pixel_stride ? pixel_stride : c;
  return {
      .dtype = float32(), .sizes = {n, c, h, w}, .strides = {h * w * pixel, 1, w * pixel, pixel}};
}

}  // namespace nimble::cases
