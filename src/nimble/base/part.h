#pragma once

#include <cstdint>

namespace nimble {

// The rows and columns of an op that one task computes.
struct Part {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t column_begin = 0;
  int64_t column_end = 0;
  bool operator==(const Part&) const = default;
};

}  // namespace nimble
