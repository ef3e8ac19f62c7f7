#pragma once

#include <cstdint>

#include "nimble/base/tensor_desc.h"

namespace nimble {

// Bytes of one memory: those of [begin, end), or, with a period, only the first `width` bytes of
// each period counted from `begin` (some channels of every pixel).
struct ByteSet {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t period = 0;  // 0: all of [begin, end)
  int64_t width = 0;   // at most the period

  bool empty() const { return begin >= end; }
  // False only if there is no common byte. Exact unless both have a period and these differ.
  bool may_overlap(const ByteSet& other) const;
  // True only if every byte of `other` is in this one.
  bool covers(const ByteSet& other) const;
  bool operator==(const ByteSet&) const = default;
};

// A set that holds every element of a tensor, and little else where elements lie at regular
// distances.
ByteSet bytes_of(const TensorDesc& desc);

}  // namespace nimble
