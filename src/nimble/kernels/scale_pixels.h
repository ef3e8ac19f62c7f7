#pragma once

#include <cstdint>

namespace nimble {

// Pixels to copy, each channel times its factor. Strides count elements; the copy is dense.
struct ScaledPixels {
  const float* from;
  int64_t from_pixel;
  int64_t from_channel;
  const float* factors;
  int64_t factor_stride;
  float* to;
  int64_t pixels;
  int64_t channels;
};

// Quick where channels and factors lie side by side.
void scale_pixels(const ScaledPixels& pixels);

}  // namespace nimble
