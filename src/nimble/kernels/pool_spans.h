#pragma once

#include <cstdint>

#include "nimble/base/op_attributes.h"

namespace nimble {

// One dim of the windows of one output index.
struct PoolSpan {
  int64_t first = 0;    // input index of the first tap inside
  int64_t taps = 0;     // inside
  int64_t counted = 0;  // inside of input and padding
};

inline PoolSpan pool_span(const Pool& pool, int dim, int64_t input, int64_t index) {
  PoolSpan span;
  const int64_t begin = index * pool.stride[dim] - pool.padding[dim];
  for (int64_t tap = 0; tap < pool.kernel[dim]; ++tap) {
    const int64_t at = begin + tap * pool.dilation[dim];
    if (at < input + pool.far_padding[dim]) ++span.counted;
    if (at < 0 || at >= input) continue;
    if (span.taps++ == 0) span.first = at;
  }
  return span;
}

// What the sum of an average is multiplied with; 0 for a window without any element, as in the
// framework.
inline float pool_scale(const Pool& pool, const PoolSpan& y, const PoolSpan& x) {
  if (y.taps * x.taps == 0) return 0;
  const int64_t divisor = pool.divisor != 0        ? pool.divisor
                          : pool.count_include_pad ? y.counted * x.counted
                                                   : y.taps * x.taps;
  return 1.0f / static_cast<float>(divisor);
}

}  // namespace nimble
