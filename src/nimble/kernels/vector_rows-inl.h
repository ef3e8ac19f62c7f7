// Per-target: included once per instruction set. Vectors over rows of floats of any length.
#if defined(NIMBLE_KERNELS_VECTOR_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIMBLE_KERNELS_VECTOR_ROWS_INL_H_
#undef NIMBLE_KERNELS_VECTOR_ROWS_INL_H_
#else
#define NIMBLE_KERNELS_VECTOR_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>

#include "nimble/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;
constexpr size_t kLanes = hn::MaxLanes(FloatTag());  // not inline: others have one of their own

// Calls step(index, count, whole) for the vectors of a row: `whole` is std::true_type for all but a
// last, short one. With load_part and store_part below.
template <class Step>
HWY_INLINE void for_each_vector(size_t size, const Step& step) {
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) step(i, kLanes, std::true_type());
  if (i < size) step(i, size - i, std::false_type());
}

template <class Whole>
HWY_INLINE FloatVector load_part(const float* from, size_t count, Whole) {
  if constexpr (Whole::value)
    return hn::LoadU(FloatTag(), from);
  else
    return load_first(FloatTag(), from, count);
}

template <class Whole>
HWY_INLINE void store_part(FloatVector value, float* to, size_t count, Whole) {
  if constexpr (Whole::value)
    hn::StoreU(value, FloatTag(), to);
  else
    store_first(FloatTag(), value, to, count);
}

// Lanes from `count` on replaced by `other`.
template <class Whole>
HWY_INLINE FloatVector fill_part(FloatVector value, FloatVector other, size_t count, Whole) {
  if constexpr (Whole::value)
    return value;
  else
    return hn::IfThenElse(hn::FirstN(FloatTag(), count), value, other);
}

namespace internal {

// The sum over a row of term(vector); lanes behind the row's end count nothing.
template <class Term>
HWY_INLINE float sum_of_terms(const float* from, size_t size, const Term& term) {
  const FloatTag d;
  FloatVector sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  size_t i = 0;
  for (; i + 4 * kLanes <= size; i += 4 * kLanes) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < 4; ++v)
      sums[v] = hn::Add(sums[v], term(hn::LoadU(d, from + i + v * kLanes)));
  }
  for (; i + kLanes <= size; i += kLanes) sums[0] = hn::Add(sums[0], term(hn::LoadU(d, from + i)));
  if (i < size) {
    const auto x = term(load_first(d, from + i, size - i));
    sums[1] = hn::Add(sums[1], hn::IfThenElseZero(hn::FirstN(d, size - i), x));
  }
  const auto sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace internal

HWY_INLINE float sum_of_row(const float* from, size_t size) {
  return internal::sum_of_terms(from, size, [](FloatVector x) HWY_ATTR { return x; });
}

// Of (x - mean)^2.
HWY_INLINE float sum_of_squares(const float* from, size_t size, float mean) {
  const auto middle = hn::Set(FloatTag(), mean);
  return internal::sum_of_terms(from, size, [middle](FloatVector x) HWY_ATTR {
    const auto distance = hn::Sub(x, middle);
    return hn::Mul(distance, distance);
  });
}

// e^x for x <= 0 or NaN, within about 1 ulp; 0 where that would be denormal.
HWY_INLINE FloatVector exp_of_nonpositive(FloatVector x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  // x = n ln 2 + r, |r| <= ln 2 / 2. Adding 1.5 * 2^23 leaves n in the low bits.
  const auto magic = hn::Set(d, 12582912.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), magic);
  const auto n = hn::Sub(shifted, magic);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  auto p = hn::MulAdd(hn::Set(d, 1.9875691500e-4f), r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto power = hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, 127 << 23));
  const auto result = hn::Mul(p, hn::BitCast(d, power));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33f)), result);
}

}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
