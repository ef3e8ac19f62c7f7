#pragma once

#include <cstdint>

#include "nimble/base/op_attributes.h"
#include "nimble/kernels/kernel.h"

// The register tile that dense convolutions and matrix products are made of. Instantiated once per
// instruction set, in gemm_tile.cc; everything else calls it through a table of functions.
namespace nimble {

inline constexpr int kMaxTileVectors = 4;
inline constexpr int kMaxTileRows = 28;

// c = last(first(a b + bias) + addend), for a few rows of a and one panel of b.
//
// A row of `a` is `run_count` runs of `run_length` floats: run r of row m begins at
// a + m * a_row + runs[r]. So a window of an image is read where it lies.
struct GemmTile {
  const float* a = nullptr;
  int64_t a_row = 0;
  const int64_t* runs = nullptr;
  int64_t run_count = 0;
  int64_t run_length = 0;
  const float* b = nullptr;     // [run_count * run_length][vectors * lanes], 64-byte aligned
  const float* bias = nullptr;  // [vectors * lanes], 64-byte aligned, or null
  bool goes_on = false;         // sums begin with what c has; no bias
  float* c = nullptr;
  int64_t c_row = 0;
  const float* addend = nullptr;  // null: none
  int64_t addend_row = 0;
  int64_t columns = 0;  // that exist, of the panel's vectors * lanes; > (vectors - 1) * lanes
  const Epilogue* epilogue = nullptr;
  // Memory wanted soon, or null: up to its end, as many lines of it as vectors are fetched per four
  // steps of k.
  const float* ahead = nullptr;
  const float* ahead_end = nullptr;
};

// A thread's way through what its next task wants, from tile to tile.
class FetchCursor {
 public:
  explicit FetchCursor(const FetchAhead& next)
      : at_(reinterpret_cast<const float*>(next.begin)),
        end_(reinterpret_cast<const float*>(next.end)) {}
  bool done() const { return at_ == nullptr; }
  void give_to(GemmTile& tile) const {
    tile.ahead = at_;
    tile.ahead_end = end_;
  }
  void take_from(const GemmTile& tile) { at_ = tile.ahead; }

 private:
  const float* at_;  // null: all is fetched
  const float* end_;
};

struct GemmTiles {
  using Function = void (*)(const GemmTile&);
  int64_t lanes = 0;
  int64_t half_lanes = 0;  // of the last vector where that is enough; the same as lanes: no gain
  int max_vectors = 0;     // of a panel
  int max_rows[kMaxTileVectors + 1] = {};                      // by vectors
  Function tiles[kMaxTileVectors + 1][kMaxTileRows + 1] = {};  // by vectors, rows
  Function half_tiles[kMaxTileVectors + 1][kMaxTileRows + 1] = {};

  // One row alone, faster than by a tile; rounds otherwise. By vectors.
  Function vectors[kMaxTileVectors + 1] = {};
  // to[k * to_row + c] = scale * from[c * from_column + k] for c < columns, k < depth.
  void (*transpose)(const float* from, int64_t from_column, int64_t columns, int64_t depth,
                    float scale, float* to, int64_t to_row) = nullptr;
  // In place.
  void (*activate)(const Activation&, float* row, int64_t count) = nullptr;

  // Any number of rows, cut into tiles of about the same size. Each fetches an equal share of what
  // is ahead, so that memory has time to answer; tile.ahead moves on, and is null at the end.
  void run(GemmTile& tile, int vectors, int64_t rows) const;
};

// Those of the best instruction set at hand.
const GemmTiles& gemm_tiles();

}  // namespace nimble
