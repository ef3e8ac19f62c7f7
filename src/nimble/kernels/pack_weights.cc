#include "nimble/kernels/pack_weights.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "nimble/kernels/gemm_tile.h"

namespace nimble {
namespace {

// Input channels times taps that are turned around at once, in cache.
constexpr int64_t kTurned = 80;
constexpr int64_t kMostColumns = 64;

bool taps_lie_together(const WeightBlock& block) {
  const auto& s = block.strides;
  const auto& [height, width] = block.kernel;
  const int64_t step = width > 1 ? s[3] : s[2];
  return std::abs(step) == 1 && (width == 1 || height == 1 || s[2] == step * width);
}

// A channel's taps lie together, those of the next input channel behind them.
void pack_by_output(const GemmTiles& tiles, const WeightBlock& block, const float* first_tap,
                    bool backwards, float* to, int64_t to_row) {
  const int64_t taps = block.kernel[0] * block.kernel[1];
  const int64_t at_once = kTurned / taps;
  alignas(64) float turned[kTurned * kMostColumns];
  for (int64_t i = 0; i < block.inputs; i += at_once) {
    const int64_t count = std::min(at_once, block.inputs - i);
    tiles.transpose(first_tap + i * taps, block.strides[0], block.columns, count * taps, 1, turned,
                    to_row);
    for (int64_t k = 0; k < count; ++k)
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t place = backwards ? taps - 1 - tap : tap;
        std::memcpy(to + (place * block.inputs + i + k) * to_row,
                    turned + (k * taps + tap) * to_row,
                    static_cast<size_t>(block.columns) * sizeof(float));
      }
  }
}

// The same, but the next output channel's are behind them.
void pack_by_input(const GemmTiles& tiles, const WeightBlock& block, const float* first_tap,
                   bool backwards, float* to, int64_t to_row) {
  const int64_t taps = block.kernel[0] * block.kernel[1];
  const int64_t tap_row = block.inputs * to_row;
  float* first = to + (backwards ? (taps - 1) * tap_row : 0);
  for (int64_t i = 0; i < block.inputs; ++i)
    tiles.transpose(first_tap + i * block.strides[1], taps, block.columns, taps, 1,
                    first + i * to_row, backwards ? -tap_row : tap_row);
}

void pack_tap(const GemmTiles& tiles, const WeightBlock& block, const float* weight, float* to,
              int64_t to_row) {
  const auto& s = block.strides;
  if (s[0] == 1 && block.columns > 1) {
    for (int64_t i = 0; i < block.inputs; ++i)
      std::memcpy(to + i * to_row, weight + i * s[1],
                  static_cast<size_t>(block.columns) * sizeof(float));
  } else if (s[1] == 1) {
    tiles.transpose(weight, s[0], block.columns, block.inputs, 1, to, to_row);
  } else {
    for (int64_t i = 0; i < block.inputs; ++i)
      for (int64_t c = 0; c < block.columns; ++c) to[i * to_row + c] = weight[c * s[0] + i * s[1]];
  }
}

}  // namespace

void pack_weights(const WeightBlock& block, float* to, int64_t to_row) {
  const GemmTiles& tiles = gemm_tiles();
  const auto& s = block.strides;
  const auto& [height, width] = block.kernel;
  const int64_t taps = height * width;
  if (block.columns < to_row)
    for (int64_t k = 0; k < taps * block.inputs; ++k)
      std::fill(to + k * to_row + block.columns, to + (k + 1) * to_row, 0.0F);
  if (taps > 1 && taps_lie_together(block)) {
    const bool backwards = (width > 1 ? s[3] : s[2]) < 0;
    const float* first = block.weight + (backwards ? (height - 1) * s[2] + (width - 1) * s[3] : 0);
    if (s[0] == taps) return pack_by_input(tiles, block, first, backwards, to, to_row);
    if ((s[1] == taps || block.inputs == 1) && taps <= kTurned && to_row <= kMostColumns)
      return pack_by_output(tiles, block, first, backwards, to, to_row);
  }
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      pack_tap(tiles, block, block.weight + y * s[2] + x * s[3],
               to + (y * width + x) * block.inputs * to_row, to_row);
}

}  // namespace nimble
