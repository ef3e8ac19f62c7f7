// Elementary functions of float vectors beside those of epilogue-inl.h, of about one part in 10^7;
// NaN, infinities and signs as in <cmath>. A lane's result depends on that lane alone. Compiled
// once per instruction set.
//
// The polynomials are Chebyshev fits on the reduced range.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#if defined(NIMBLE_KERNELS_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIMBLE_KERNELS_VECTOR_MATH_INL_H_
#undef NIMBLE_KERNELS_VECTOR_MATH_INL_H_
#else
#define NIMBLE_KERNELS_VECTOR_MATH_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE::math {

namespace hn = hwy::HWY_NAMESPACE;

// Horner's rule; the coefficient of the highest power comes first.
template <class D, class V, class... Coefficients>
HWY_INLINE V polynomial(D d, V x, double highest, Coefficients... others) {
  using T = hn::TFromD<D>;
  V sum = hn::Set(d, static_cast<T>(highest));
  ((sum = hn::MulAdd(sum, x, hn::Set(d, static_cast<T>(others)))), ...);
  return sum;
}

template <class V>
HWY_INLINE V maximum(V a, V b) {  // NaN if one is
  return hn::IfThenElse(hn::Or(hn::Ge(a, b), hn::IsNaN(a)), a, b);
}

template <class V>
HWY_INLINE V minimum(V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Le(a, b), hn::IsNaN(a)), a, b);
}

template <class D, class V>
HWY_INLINE V log(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto subnormal = hn::Lt(x, hn::Set(d, std::numeric_limits<float>::min()));
  const V scaled = hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, 8388608.0f)), x);
  // x = 2^e * m with m of [sqrt(1/2), sqrt(2)).
  constexpr int32_t kSqrtHalf = 0x3f3504f3;
  const auto bits = hn::BitCast(di, scaled);
  const auto e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, kSqrtHalf)));
  const V m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(e)));
  const V exponent = hn::Sub(hn::ConvertTo(d, e), hn::IfThenElseZero(subnormal, hn::Set(d, 23.0f)));
  const V f = hn::Sub(m, hn::Set(d, 1.0f));
  const V f2 = hn::Mul(f, f);
  const V p = polynomial(d, f, 0.06971611471, -0.1147973385, 0.1168541992, -0.1242568733,
                         0.1424905765, -0.1666780232, 0.2000071575, -0.2499999696, 0.3333333118);
  V low = hn::Mul(hn::Mul(f, f2), p);
  low = hn::MulAdd(exponent, hn::Set(d, -2.12194440e-4f), low);
  low = hn::NegMulAdd(hn::Set(d, 0.5f), f2, low);
  V result = hn::MulAdd(exponent, hn::Set(d, 0.693359375f), hn::Add(f, low));
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  result = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), result);
  result = hn::IfThenElse(hn::Ge(x, infinity), infinity, result);
  return hn::IfThenElse(hn::Ge(x, hn::Zero(d)), result,
                        hn::Set(d, std::numeric_limits<float>::quiet_NaN()));
}

// sin(x + quarter_turns * pi/2).
template <class D, class V>
HWY_INLINE V sine_of_turned(D d, V x, int32_t quarter_turns) {
  const hn::RebindToSigned<D> di;
  constexpr float kFar = 8192.0f;  // the products below are exact up to there
  const V bounded = hn::IfThenElseZero(hn::Le(hn::Abs(x), hn::Set(d, kFar)), x);
  const V turns = hn::Round(hn::Mul(bounded, hn::Set(d, 0.636619772f)));
  // pi/2 in parts of few bits.
  V r = hn::NegMulAdd(turns, hn::Set(d, 1.5703125f), bounded);
  r = hn::NegMulAdd(turns, hn::Set(d, 4.837512969970703125e-4f), r);
  r = hn::NegMulAdd(turns, hn::Set(d, 7.54971551942e-8f), r);
  r = hn::NegMulAdd(turns, hn::Set(d, 7.44354773131e-13f), r);
  const V t = hn::Mul(r, r);
  const V sine = hn::MulAdd(
      hn::Mul(r, t),
      polynomial(d, t, 2.724378141e-6, -0.0001984003887, 0.008333331785, -0.1666666666), r);
  const V cosine =
      hn::MulAdd(hn::Mul(t, t), polynomial(d, t, 2.454287111e-5, -0.001388827933, 0.04166666454),
                 hn::NegMulAdd(hn::Set(d, 0.5f), t, hn::Set(d, 1.0f)));
  const auto quadrant = hn::Add(hn::ConvertTo(di, turns), hn::Set(di, quarter_turns));
  const auto odd = hn::RebindMask(d, hn::Eq(hn::And(quadrant, hn::Set(di, 1)), hn::Set(di, 1)));
  const auto sign = hn::ShiftLeft<30>(hn::And(quadrant, hn::Set(di, 2)));
  const V result = hn::Xor(hn::IfThenElse(odd, cosine, sine), hn::BitCast(d, sign));

  const auto far = hn::Not(hn::Le(hn::Abs(x), hn::Set(d, kFar)));  // or NaN
  if (HWY_LIKELY(hn::AllFalse(d, far))) return result;
  alignas(64) float lanes[hn::MaxLanes(D())];
  alignas(64) float results[hn::MaxLanes(D())];
  hn::Store(x, d, lanes);
  hn::Store(result, d, results);
  for (size_t i = 0; i < hn::Lanes(d); ++i)
    if (!(std::abs(lanes[i]) <= kFar))
      results[i] = quarter_turns ? std::cos(lanes[i]) : std::sin(lanes[i]);
  return hn::Load(d, results);
}

template <class D, class V>
HWY_INLINE V sin(D d, V x) {
  return sine_of_turned(d, x, 0);
}

template <class D, class V>
HWY_INLINE V cos(D d, V x) {
  return sine_of_turned(d, x, 1);
}

#if HWY_TARGET == HWY_SCALAR

template <class D, class V>
HWY_INLINE V pow(D d, V x, V y) {
  return hn::Set(d, std::pow(hn::GetLane(x), hn::GetLane(y)));
}

#else

// |x|^y of doubles that were floats, apart from special cases: 0 and infinity count as powers of
// two beyond the range of floats.
template <class DD, class VD>
HWY_INLINE VD power_of_magnitude(DD d, VD x, VD y) {
  const hn::RebindToSigned<DD> di;
  constexpr int64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  constexpr int64_t kTwoTo52 = 0x4330000000000000;
  const auto bits = hn::BitCast(di, x);
  // The exponent e, biased to stay positive, as a double without a conversion of 64-bit integers.
  const auto biased =
      hn::ShiftRight<52>(hn::Add(bits, hn::Set(di, (int64_t{1024} << 52) - kSqrtHalf)));
  const VD e = hn::Sub(hn::BitCast(d, hn::Or(biased, hn::Set(di, kTwoTo52))),
                       hn::Set(d, 4503599627370496.0 + 1024.0));
  const auto m_bits = hn::Sub(bits, hn::ShiftLeft<52>(hn::Sub(biased, hn::Set(di, 1024))));
  const VD m = hn::BitCast(d, m_bits);
  const VD one = hn::Set(d, 1.0);
  const VD s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const VD log2 = hn::MulAdd(
      s,
      polynomial(d, hn::Mul(s, s), 0.2828918512503826, 0.3199063518268179, 0.4122092344018181,
                 0.5770779425652735, 0.9617966941125641, 2.88539008177785),
      e);
  VD t = hn::Mul(y, log2);
  t = hn::IfThenElse(hn::Lt(t, hn::Set(d, -1000.0)), hn::Set(d, -1000.0), t);
  t = hn::IfThenElse(hn::Gt(t, hn::Set(d, 1000.0)), hn::Set(d, 1000.0), t);
  // Adding 1.5 * 2^52 leaves the nearest integer in the low bits.
  const VD shifted = hn::Add(t, hn::Set(d, 6755399441055744.0));
  const VD f = hn::Sub(t, hn::Sub(shifted, hn::Set(d, 6755399441055744.0)));
  const VD p = polynomial(d, f, 1.530390509058455e-5, 0.0001546999476270236, 0.00133334778337567,
                          0.009618024781872924, 0.05550410906806735, 0.240226512197458,
                          0.6931471805567822, 1.0);
  const auto scale = hn::ShiftLeft<52>(hn::Add(hn::BitCast(di, shifted), hn::Set(di, 1023)));
  return hn::Mul(p, hn::BitCast(d, scale));
}

template <class D, class V>
HWY_INLINE V pow(D d, V x, V y) {
  const hn::Half<D> half;
  const hn::Repartition<double, D> wide;
  const V one = hn::Set(d, 1.0f);
  const V zero = hn::Zero(d);
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const V magnitude = hn::Abs(x);

  const auto low = power_of_magnitude(wide, hn::PromoteTo(wide, hn::LowerHalf(half, magnitude)),
                                      hn::PromoteTo(wide, hn::LowerHalf(half, y)));
  const auto high = power_of_magnitude(wide, hn::PromoteTo(wide, hn::UpperHalf(half, magnitude)),
                                       hn::PromoteTo(wide, hn::UpperHalf(half, y)));
  V result = hn::Combine(d, hn::DemoteTo(half, high), hn::DemoteTo(half, low));

  const auto up = hn::Gt(y, zero);
  result = hn::IfThenElse(hn::Eq(magnitude, zero), hn::IfThenElse(up, zero, infinity), result);
  result = hn::IfThenElse(hn::Eq(magnitude, infinity), hn::IfThenElse(up, infinity, zero), result);
  result = hn::IfThenElse(hn::Eq(magnitude, one), one, result);

  const auto whole = hn::Eq(hn::Floor(y), y);
  const V y_half = hn::Mul(y, hn::Set(d, 0.5f));
  const auto odd = hn::And(whole, hn::Ne(hn::Floor(y_half), y_half));
  result = hn::IfThenElse(odd, hn::CopySign(result, x), result);
  const auto finite_negative = hn::And(hn::Lt(x, zero), hn::Ne(magnitude, infinity));
  const V nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
  const auto invalid =
      hn::Or(hn::Or(hn::IsNaN(x), hn::IsNaN(y)), hn::AndNot(whole, finite_negative));
  result = hn::IfThenElse(invalid, nan, result);
  return hn::IfThenElse(hn::Or(hn::Eq(y, zero), hn::Eq(x, one)), one, result);
}

#endif

}  // namespace nimble::HWY_NAMESPACE::math
HWY_AFTER_NAMESPACE();

#endif
