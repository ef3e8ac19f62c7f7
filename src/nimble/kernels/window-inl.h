// Per-target: the maximum or the sum of a window of pixels.
#if defined(NIMBLE_KERNELS_WINDOW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIMBLE_KERNELS_WINDOW_INL_H_
#undef NIMBLE_KERNELS_WINDOW_INL_H_
#else
#define NIMBLE_KERNELS_WINDOW_INL_H_
#endif

#include <hwy/highway.h>

#include <limits>

#include "nimble/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The pixels of a window that are inside of the image.
struct Window {
  const float* first;
  int64_t rows;
  int64_t columns;
  int64_t row_step;
  int64_t column_step;
};

template <Pool::Kind kKind>
HWY_INLINE FloatVector nothing_yet() {
  return hn::Set(FloatTag(),
                 kKind == Pool::Kind::kMax ? -std::numeric_limits<float>::infinity() : 0.0f);
}

// A NaN, once seen, stays.
template <Pool::Kind kKind>
HWY_INLINE FloatVector combine(FloatVector sum, FloatVector x) {
  if constexpr (kKind == Pool::Kind::kMax)
    return hn::IfThenElse(hn::Or(hn::Gt(x, sum), hn::IsNaN(x)), x, sum);
  else
    return hn::Add(sum, x);
}

// kVectors neighbouring vectors. Two sums each, of even and odd columns, as additions take a while.
template <Pool::Kind kKind, int kVectors, class Lanes>
HWY_INLINE void reduce_window(const Window& window, const Lanes& lanes,
                              FloatVector (&result)[kVectors]) {
  FloatVector odd[kVectors];
  for_each_constant<kVectors>([&](auto i) NIMBLE_INLINE_LAMBDA {
    result[i] = nothing_yet<kKind>();
    odd[i] = nothing_yet<kKind>();
  });
  const float* row = window.first;
  for (int64_t y = 0; y < window.rows; ++y, row += window.row_step) {
    const float* at = row;
    int64_t x = 0;
    for (; x + 1 < window.columns; x += 2, at += 2 * window.column_step) {
      for_each_constant<kVectors>([&](auto i) NIMBLE_INLINE_LAMBDA {
        result[i] = combine<kKind>(result[i], lanes.load(at + i * kLanes));
        odd[i] = combine<kKind>(odd[i], lanes.load(at + window.column_step + i * kLanes));
      });
    }
    if (x < window.columns) {
      for_each_constant<kVectors>([&](auto i) NIMBLE_INLINE_LAMBDA {
        result[i] = combine<kKind>(result[i], lanes.load(at + i * kLanes));
      });
    }
  }
  for_each_constant<kVectors>(
      [&](auto i) NIMBLE_INLINE_LAMBDA { result[i] = combine<kKind>(result[i], odd[i]); });
}

}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
