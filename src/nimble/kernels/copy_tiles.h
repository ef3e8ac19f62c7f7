#pragma once

#include <cstdint>

namespace nimble {

// A rectangle of elements to copy: `rows` runs of `run` elements. Strides count elements.
struct CopyTile {
  const void* from;
  void* to;
  int64_t rows;
  int64_t run;
  int64_t from_row_stride;
  int64_t from_run_stride;
  int64_t to_row_stride;
  int64_t to_run_stride;
};
using CopyFunction = void (*)(const CopyTile&);

// The best way for tiles with the strides of this one; `run` is the usual length. For the
// instruction set at hand. Null for elements of another size than 1, 2, 4, 8 or 16 bytes.
CopyFunction copy_function(const CopyTile& like, int element_bytes);

}  // namespace nimble
