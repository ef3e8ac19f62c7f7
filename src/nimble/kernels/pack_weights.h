#pragma once

#include <array>
#include <cstdint>

namespace nimble {

// Some output channels of a convolution's weights, in any strides; a negative stride turns taps
// around. `weight` is at the first channels and taps.
struct WeightBlock {
  const float* weight = nullptr;
  std::array<int64_t, 4> strides = {};  // output channel, input channel, row, column
  int64_t columns = 0;                  // output channels
  int64_t inputs = 0;
  std::array<int64_t, 2> kernel = {};
};

// to[((y * width + x) * inputs + i) * to_row + c] for all taps and channels; zeros from `columns`
// to `to_row`.
void pack_weights(const WeightBlock& block, float* to, int64_t to_row);

}  // namespace nimble
