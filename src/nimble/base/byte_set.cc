#include "nimble/base/byte_set.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace nimble {
namespace {

// Where in its period a byte at or behind the begin of the set stands.
int64_t phase_of(const ByteSet& set, int64_t byte) {
  return (byte - set.begin) % set.period;
}

// Whether [begin, end), inside the set's outer bounds, has a byte of a set with a period.
bool stretch_meets(const ByteSet& set, int64_t begin, int64_t end) {
  const int64_t phase = phase_of(set, begin);
  return begin < end && (phase < set.width || end - begin > set.period - phase);
}

}  // namespace

bool ByteSet::may_overlap(const ByteSet& other) const {
  const int64_t first = std::max(begin, other.begin);
  const int64_t last = std::min(end, other.end);
  if (first >= last) return false;
  if (period == 0 && other.period == 0) return true;
  if (period == 0) return stretch_meets(other, first, last);
  if (other.period == 0) return stretch_meets(*this, first, last);
  if (period != other.period) {
    // Both lie within sets that have a common divisor as their period.
    const int64_t divisor = std::gcd(period, other.period);
    const int64_t shift = (((other.begin - begin) % divisor) + divisor) % divisor;
    return shift < width || shift + other.width > divisor;
  }
  // What is common repeats with the period. In the first one this set has at most two stretches:
  // the rest of the one that `first` stands in, and the next one.
  const int64_t phase = phase_of(*this, first);
  const int64_t rest_end = std::min(last, first + std::max<int64_t>(width - phase, 0));
  const int64_t next = first + period - phase;
  return stretch_meets(other, first, rest_end) ||
         stretch_meets(other, next, std::min(last, next + width));
}

bool ByteSet::covers(const ByteSet& other) const {
  if (other.empty()) return true;
  if (begin > other.begin || end < other.end) return false;
  if (period == 0 || width == period) return true;
  const int64_t phase = phase_of(*this, other.begin);
  if (other.period == period) return phase + other.width <= width;
  return phase + (other.end - other.begin) <= width;  // all in one stretch of this set
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
  int64_t distance = 0;
  for (size_t d = inner; d < dims.size(); ++d) distance = std::gcd(distance, desc.strides[dims[d]]);
  if (distance <= run) return set;
  set.period = distance * desc.dtype.bytes;
  set.width = run * desc.dtype.bytes;
  return set;
}

}  // namespace nimble
