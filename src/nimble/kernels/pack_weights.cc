#include "nimble/kernels/pack_weights.h"

#include <algorithm>
#include <cstring>

#include "nimble/kernels/gemm_tile.h"

namespace nimble {
namespace {

// Floats of an output channel that are turned around at once, in cache.
constexpr int64_t kTurned = 80;
constexpr int64_t kMostColumns = 64;

// The taps of a channel in memory: from the first to behind the last one.
struct TapSpan {
  int64_t first = 0;  // from tap 0, 0
  int64_t length = 0;
};

TapSpan span_of(const WeightBlock& block) {
  TapSpan span{0, 1};
  for (size_t d : {0, 1}) {
    const int64_t reach = (block.kernel[d] - 1) * block.strides[d + 2];
    span.first += std::min<int64_t>(reach, 0);
    span.length += std::max(reach, -reach);
  }
  return span;
}

// Turns the spans of some input channels, `distance` floats apart, around: `turned` then has a row
// of output channels for each float. Copies the rows of the taps to their places.
void pack_spans(const GemmTiles& tiles, const WeightBlock& block, const TapSpan& span, int64_t i,
                int64_t count, int64_t distance, float* turned, float* to, int64_t to_row) {
  const auto& s = block.strides;
  tiles.transpose(block.weight + i * s[1] + span.first, s[0], block.columns,
                  (count - 1) * distance + span.length, 1, turned, to_row);
  for (int64_t k = 0; k < count; ++k)
    for (int64_t y = 0; y < block.kernel[0]; ++y)
      for (int64_t x = 0; x < block.kernel[1]; ++x) {
        const int64_t from = k * distance + y * s[2] + x * s[3] - span.first;
        const int64_t place = (y * block.kernel[1] + x) * block.inputs + i + k;
        std::memcpy(to + place * to_row, turned + from * to_row,
                    static_cast<size_t>(block.columns) * sizeof(float));
      }
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
  // Taps of a channel that lie close together, those of the next input or output channel behind.
  const TapSpan span = span_of(block);
  if (taps > 1 && 4 * span.length <= 5 * taps && span.length <= kTurned && to_row <= kMostColumns &&
      span.length <= std::max(s[0], s[1])) {
    alignas(64) float turned[kTurned * kMostColumns];
    const bool inputs_follow = s[1] >= span.length && s[1] <= 2 * span.length && s[0] > s[1];
    const int64_t at_once = inputs_follow ? std::max<int64_t>(kTurned / s[1], 1) : 1;
    for (int64_t i = 0; i < block.inputs; i += at_once)
      pack_spans(tiles, block, span, i, std::min(at_once, block.inputs - i),
                 inputs_follow ? s[1] : 0, turned, to, to_row);
    return;
  }
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      pack_tap(tiles, block, block.weight + y * s[2] + x * s[3],
               to + (y * width + x) * block.inputs * to_row, to_row);
}

}  // namespace nimble
