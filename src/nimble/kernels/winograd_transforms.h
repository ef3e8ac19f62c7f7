#pragma once

#include <array>
#include <cstdint>

#include "nimble/kernels/image_rows.h"

// The transforms around the products of a Winograd convolution with 3x3 weights. A tile is
// `size` x `size` pixels of the output and needs `points` x `points` of the input, where points =
// size + 2. Everything is vectorised over channels.
namespace nimble {

constexpr int64_t winograd_points(int64_t size) {
  return size + 2;
}

// Tiles are counted over all images, row by row.
struct WinogradGrid {
  ImageRows input;
  ImageRows output;
  int64_t top = 0;  // padding
  int64_t left = 0;
  int64_t tile_rows = 0;  // per image
  int64_t tile_columns = 0;
};

// From tiles [begin, end) of the input to one matrix [tile, channel] per point.
struct WinogradInput {
  const WinogradGrid* grid = nullptr;
  const float* input = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  float* values = nullptr;
  int64_t point_stride = 0;
  int64_t tile_stride = 0;  // at least the channels, a multiple of the lanes
  float* patch = nullptr;   // room for one tile
};

// From one matrix [tile, channel] per point to tiles of the output, for the channels of a panel.
struct WinogradOutput {
  const WinogradGrid* grid = nullptr;
  const float* sums = nullptr;
  int64_t point_stride = 0;
  int64_t tile_stride = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t columns = 0;
  const float* bias = nullptr;    // of the panel
  float* output = nullptr;        // at the panel's first channel
  const float* addend = nullptr;  // likewise, or null
  const ImageRows* addend_rows = nullptr;
  const Epilogue* epilogue = nullptr;
  // What a sum that is not finite is computed from again: an infinity spreads over its whole tile.
  const float* input = nullptr;
  const float* weights = nullptr;              // plain ones, at the panel's first channel
  std::array<int64_t, 4> weight_strides = {};  // output channel, input channel, row, column
};

// From plain weights [ky][kx][input][output] to one matrix [input][output] per point.
struct WinogradWeights {
  const float* weights = nullptr;
  int64_t inputs = 0;
  int64_t outputs = 0;  // a multiple of the lanes; aligned
  float* to = nullptr;
  int64_t point_stride = 0;
};

// For tiles of one size, on one instruction set.
struct WinogradTransforms {
  void (*input)(const WinogradInput&) = nullptr;
  void (*output)(const WinogradOutput&) = nullptr;
  void (*weights)(const WinogradWeights&) = nullptr;
};

// Those of the best instruction set at hand; size 2 or 4.
WinogradTransforms winograd_transforms(int64_t size);

}  // namespace nimble
