#include "nimble/base/byte_set.h"

#include <algorithm>
#include <vector>

namespace nimble {

bool ByteSet::may_overlap(const ByteSet& other) const {
  if (std::max(begin, other.begin) >= std::min(end, other.end)) return false;
  if (period == 0 || period != other.period) {
    // A stretch may lie in a gap of a periodic set.
    const ByteSet* stretch = period == 0 ? this : other.period == 0 ? &other : nullptr;
    const ByteSet* periodic = period != 0 ? this : &other;
    if (stretch == nullptr || periodic->period == 0) return true;
    const int64_t first = std::max(stretch->begin, periodic->begin) - periodic->begin;
    const int64_t last = std::min(stretch->end, periodic->end) - periodic->begin;
    const int64_t phase = first % periodic->period;
    return phase < periodic->width || last - first > periodic->period - phase;
  }
  // [0, width) and [shift, shift + other.width), both modulo the period.
  const int64_t shift = (((other.begin - begin) % period) + period) % period;
  return shift < width || shift + other.width > period;
}

bool ByteSet::covers(const ByteSet& other) const {
  if (other.empty()) return true;
  if (begin > other.begin || end < other.end) return false;
  if (period == 0) return true;
  if (period != other.period) return false;
  const int64_t shift = (((other.begin - begin) % period) + period) % period;
  return shift + other.width <= width;
}

ByteSet bytes_of(const TensorDesc& desc) {
  ByteSet set{desc.begin_byte(), desc.end_byte(), 0, 0};
  if (set.empty() || desc.is_dense()) return set;
  std::vector<size_t> dims;
  for (size_t d = 0; d < desc.sizes.size(); ++d)
    if (desc.sizes[d] != 1 && desc.strides[d] != 0) dims.push_back(d);
  std::sort(dims.begin(), dims.end(),
            [&](size_t a, size_t b) { return desc.strides[a] < desc.strides[b]; });
  // Elements that follow each other, then gaps at a fixed distance.
  int64_t run = 1;
  size_t inner = 0;
  while (inner < dims.size() && desc.strides[dims[inner]] == run) run *= desc.sizes[dims[inner++]];
  if (inner == dims.size()) return set;
  const int64_t distance = desc.strides[dims[inner]];
  if (distance < run) return set;
  for (size_t d = inner; d < dims.size(); ++d)
    if (desc.strides[dims[d]] % distance != 0) return set;
  set.period = distance * desc.dtype.bytes;
  set.width = run * desc.dtype.bytes;
  return set;
}

}  // namespace nimble
