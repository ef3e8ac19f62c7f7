#pragma once

#include <cstdint>

#include "nimble/kernels/gemm_tile.h"

// The register tile that gradients of weights are made of: sums over pixels of outer products of
// channels, which lie side by side in both images. Instantiated once per instruction set.
namespace nimble {

// Pixels at a fixed distance in both images; where the first ones are.
struct PixelRun {
  int64_t a = 0;
  int64_t b = 0;
  int64_t count = 0;
};

// c[m * c_row + n] = sum of a[m] * b[n] over the pixels of all runs, for a few m and one panel of
// n.
struct OuterTile {
  const float* a = nullptr;
  int64_t a_step = 0;  // from one pixel of a run to the next
  const float* b = nullptr;
  int64_t b_step = 0;
  const PixelRun* runs = nullptr;
  int64_t run_count = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  bool goes_on = false;  // sums begin with what c has
  int64_t columns = 0;   // n: at most vectors * lanes, more than (vectors - 1) * lanes
};

struct OuterTiles {
  using Function = void (*)(const OuterTile&);
  enum Variant { kWhole, kPartial, kHalf, kVariants };  // of the last vector
  int64_t lanes = 0;
  int64_t half_lanes = 0;
  int max_vectors = 0;
  int max_rows[kMaxTileVectors + 1] = {};  // by vectors
  Function tiles[kVariants][kMaxTileVectors + 1][kMaxTileRows + 1] = {};
  // to[c] += the sum of from[p * step + c] over `count` pixels, for c < channels.
  void (*sum_pixels)(const float* from, int64_t step, int64_t count, int64_t channels,
                     float* to) = nullptr;

  int64_t vectors_of(int64_t columns) const { return (columns + lanes - 1) / lanes; }
  // Any number of rows, cut into tiles of about the same size.
  void run(OuterTile tile, int64_t rows) const;
};

// Those of the best instruction set at hand.
const OuterTiles& outer_tiles();

}  // namespace nimble
