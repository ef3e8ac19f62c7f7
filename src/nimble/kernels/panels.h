#pragma once

#include <algorithm>
#include <cstdint>

#include "nimble/kernels/gemm_tile.h"

namespace nimble {

// How the columns of a matrix are cut into panels for the register tile, and where they lie in
// packed memory: panel after panel, each its bias row and then `depth` rows of columns.
struct Panels {
  int64_t columns = 0;
  int64_t depth = 0;
  int64_t lanes = 1;
  int64_t vectors = 1;  // of every panel but the last, which may have fewer

  int64_t width() const { return vectors * lanes; }
  int64_t count() const { return (columns + width() - 1) / width(); }
  int64_t begin(int64_t panel) const { return panel * width(); }
  int64_t columns_of(int64_t panel) const { return std::min(width(), columns - begin(panel)); }
  int64_t vectors_of(int64_t panel) const { return (columns_of(panel) + lanes - 1) / lanes; }
  int64_t stride_of(int64_t panel) const { return vectors_of(panel) * lanes; }
  // In floats.
  int64_t bias_offset(int64_t panel) const { return begin(panel) * (depth + 1); }
  int64_t offset(int64_t panel) const { return bias_offset(panel) + stride_of(panel); }
  int64_t packed_size() const { return (columns + lanes - 1) / lanes * lanes * (depth + 1); }

  // Where the panels of these columns lie, in bytes.
  PackedRange range(int64_t column_begin, int64_t column_end) const;

  // The panels of these columns with row i of the weights times factors[i * factor_stride], at the
  // same places from `to` on. The bias stays.
  void scale_rows(const float* packed, int64_t column_begin, int64_t column_end,
                  const float* factors, int64_t factor_stride, float* to) const;

  // Panels of at most `most` vectors, as equal as they get.
  static Panels cut(int64_t columns, int64_t depth, int64_t lanes, int64_t most);

  // Cycles for `lines` times `rows` rows, roughly: what the choice of a panel's width goes by.
  double estimate(const GemmTiles& tiles, int64_t lines, int64_t rows) const;
};

}  // namespace nimble
