#pragma once

#include <cstdint>

namespace nimble {

// Rows of `columns` floats, `row_stride` apart.
struct ColumnRows {
  const float* from;
  int64_t rows;
  int64_t columns;
  int64_t row_stride;
};

// Adds each column's elements to its total. For the instruction set at hand.
using ColumnSums = void (*)(const ColumnRows& rows, double* totals);
ColumnSums column_sums();

// The same for the elements and for their squares, nothing being lost of these.
using ColumnMoments = void (*)(const ColumnRows& rows, double* sums, double* squares);
ColumnMoments column_moments();

// The rows [begin, end) of a block.
struct BlockRows {
  int64_t begin;
  int64_t end;
};
inline BlockRows rows_of_block(int64_t rows, int64_t block, int64_t blocks) {
  return {block * rows / blocks, (block + 1) * rows / blocks};
}

}  // namespace nimble
