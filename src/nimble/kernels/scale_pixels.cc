// Copies of pixels with a factor per channel, by instruction set.
#include "nimble/kernels/scale_pixels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/scale_pixels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

HWY_INLINE FloatVector scaled(const float* from, const float* factors) {
  const FloatTag d;
  return hn::Mul(hn::LoadU(d, from), hn::LoadU(d, factors));
}

void scale_dense_channels(const ScaledPixels& x) {
  const FloatTag d;
  const int64_t rest = x.channels % kLanes;
  const int64_t whole = x.channels - rest;
  const SomeLanes some(static_cast<int>(rest));
  const float* from = x.from;
  float* to = x.to;
  for (int64_t p = 0; p < x.pixels; ++p, from += x.from_pixel, to += x.channels) {
    int64_t c = 0;
    for (; c + 2 * kLanes <= whole; c += 2 * kLanes) {
      hn::StoreU(scaled(from + c, x.factors + c), d, to + c);
      hn::StoreU(scaled(from + c + kLanes, x.factors + c + kLanes), d, to + c + kLanes);
    }
    if (c < whole) hn::StoreU(scaled(from + c, x.factors + c), d, to + c);
    if (rest != 0)
      some.store(hn::Mul(some.load(from + whole), some.load(x.factors + whole)), to + whole);
  }
}

void scale_any_channels(const ScaledPixels& x) {
  for (int64_t p = 0; p < x.pixels; ++p)
    for (int64_t c = 0; c < x.channels; ++c)
      x.to[p * x.channels + c] =
          x.from[p * x.from_pixel + c * x.from_channel] * x.factors[c * x.factor_stride];
}

void run_scale_pixels(const ScaledPixels& x) {
  if (x.from_channel == 1 && x.factor_stride == 1)
    scale_dense_channels(x);
  else
    scale_any_channels(x);
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {

HWY_EXPORT(run_scale_pixels);
void scale_pixels(const ScaledPixels& pixels) {
  HWY_DYNAMIC_DISPATCH(run_scale_pixels)(pixels);
}

}  // namespace nimble
#endif
