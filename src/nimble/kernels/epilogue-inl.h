// Per-target: activations and what else happens to results in registers.
//
// Included by per-target sources after <hwy/highway.h>, inside foreach_target's repeated passes.
#if defined(NIMBLE_KERNELS_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIMBLE_KERNELS_EPILOGUE_INL_H_
#undef NIMBLE_KERNELS_EPILOGUE_INL_H_
#else
#define NIMBLE_KERNELS_EPILOGUE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "nimble/base/op_attributes.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether masked loads and stores touch nothing beside their lanes.
inline constexpr bool kMasksAreSafe = HWY_TARGET <= HWY_AVX2;

// The first `count` floats (0 … lanes) of memory, zero behind; reads nothing else.
template <class D>
HWY_INLINE hn::Vec<D> load_first(D d, const float* from, size_t count) {
  if constexpr (kMasksAreSafe) {
    return hn::MaskedLoad(hn::FirstN(d, count), d, from);
  } else {
    HWY_ALIGN float lanes[hn::MaxLanes(d)] = {};
    for (size_t i = 0; i < count; ++i) lanes[i] = from[i];
    return hn::Load(d, lanes);
  }
}

// Writes the first `count` lanes (0 … lanes) and nothing else.
template <class D>
HWY_INLINE void store_first(D d, hn::Vec<D> v, float* to, size_t count) {
  if constexpr (kMasksAreSafe) {
    hn::BlendedStore(v, hn::FirstN(d, count), d, to);
  } else {
    HWY_ALIGN float lanes[hn::MaxLanes(d)];
    hn::Store(v, d, lanes);
    for (size_t i = 0; i < count; ++i) to[i] = lanes[i];
  }
}

// The larger or smaller one; a NaN in x stays.
template <class V>
HWY_INLINE V at_least(V x, V low) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  return hn::Max(low, x);  // the second operand where one is NaN
#else
  return hn::IfThenElse(hn::Lt(x, low), low, x);
#endif
}
template <class V>
HWY_INLINE V at_most(V x, V high) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  return hn::Min(high, x);
#else
  return hn::IfThenElse(hn::Gt(x, high), high, x);
#endif
}

namespace internal {

// 2^n as a float, for n in [-126, 127].
template <class D, class VI>
HWY_INLINE hn::Vec<D> power_of_two(D d, VI n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// x = n ln 2 + r, |r| <= ln 2 / 2, n whole; returns e^r - 1.
template <class D, class V>
HWY_INLINE V reduced_expm1(D d, V x, V& whole) {
  whole = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  V r = hn::NegMulAdd(whole, hn::Set(d, 0.693145751953125f), x);
  r = hn::NegMulAdd(whole, hn::Set(d, 1.42860682030941723212e-6f), r);
  V p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  return hn::MulAdd(hn::Mul(r, r), p, r);
}

// x 2^n for a whole n of which 2^n may be out of range.
template <class D, class V>
HWY_INLINE V scaled(D d, V x, V n) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(V) == 64) return V{_mm512_scalef_ps(x.raw, n.raw)};
#endif
  const auto whole = hn::ConvertTo(hn::RebindToSigned<D>(), n);
  const auto half = hn::ShiftRight<1>(whole);
  return hn::Mul(hn::Mul(x, power_of_two(d, half)), power_of_two(d, hn::Sub(whole, half)));
}

// 1 / x for x that are neither large nor small; NaN stays. Division would take as long as all the
// rest of an activation.
template <class D, class V>
HWY_INLINE V moderate_reciprocal(D d, V x) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  const V estimate = hn::ApproximateReciprocal(x);
  return hn::MulAdd(estimate, hn::NegMulAdd(x, estimate, hn::Set(d, 1.0f)), estimate);
#else
  return hn::Div(hn::Set(d, 1.0f), x);
#endif
}

// 1 / x for x in [1, infinity]; NaN stays.
template <class D, class V>
HWY_INLINE V reciprocal(D d, V x) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  const V better = moderate_reciprocal(d, x);
  const auto is_infinite = hn::Eq(x, hn::Set(d, std::numeric_limits<float>::infinity()));
  return hn::IfThenElse(is_infinite, hn::Zero(d), better);
#else
  return hn::Div(hn::Set(d, 1.0f), x);
#endif
}

#if HWY_TARGET == HWY_AVX3
// 1 / (1 + 2^t), t = -x / ln 2, in half the instructions that exp_of and reciprocal take together:
// 2^t = 2^floor(t) p(t - floor(t)), p through the nodes of Chebyshev on [0, 1], and the last step
// of the reciprocal gives 0 where 2^t is infinite.
HWY_INLINE __m512 sigmoid_of(__m512 x) {
  constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(-1.44269504088896341f));
  const __m512 f = _mm512_reduce_ps(t, kDown);
  __m512 p = _mm512_set1_ps(1.893754058e-3f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(8.949590423e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.586033708e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.401418182e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931544897e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.999998984e-1f));
  const __m512 y = _mm512_add_ps(one, _mm512_scalef_ps(p, t));
  const __mmask16 is_finite =
      _mm512_cmp_ps_mask(y, _mm512_set1_ps(std::numeric_limits<float>::infinity()), _CMP_NEQ_UQ);
  const __m512 estimate = _mm512_rcp14_ps(y);
  return _mm512_maskz_fmadd_ps(is_finite, estimate, _mm512_fnmadd_ps(y, estimate, one), estimate);
}
#endif

}  // namespace internal

// e^x within 2 ulp; 0, infinity and NaN where they belong.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of(D d, V x) {
  x = at_least(at_most(x, hn::Set(d, 89.0f)), hn::Set(d, -104.0f));
  V n;
  const V e = hn::Add(internal::reduced_expm1(d, x, n), hn::Set(d, 1.0f));
  return internal::scaled(d, e, n);
}

// e^x - 1 for x <= 0, without loss near zero.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V expm1_of_negative(D d, V x) {
  x = at_least(x, hn::Set(d, -40.0f));
  V n;
  const V e = internal::reduced_expm1(d, x, n);
  const V scale = internal::power_of_two(d, hn::ConvertTo(hn::RebindToSigned<D>(), n));
  return hn::MulAdd(scale, e, hn::Sub(scale, hn::Set(d, 1.0f)));
}

// Within 1e-6 of itself where |x| < 20, within 6e-6 where it is next to 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid_of(D d, V x) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(V) == 64) return V{internal::sigmoid_of(x.raw)};
#endif
  const V one = hn::Set(d, 1.0f);
  return internal::reciprocal(d, hn::Add(one, exp_of(d, hn::Neg(x))));
}

// A rational function where it is not ±1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh_of(D d, V x) {
  const V limit = hn::Set(d, 7.90531110763549805f);
  const V y = at_least(at_most(x, limit), hn::Neg(limit));
  const V y2 = hn::Mul(y, y);
  V p = hn::Set(d, -2.76076847742355e-16f);
  p = hn::MulAdd(p, y2, hn::Set(d, 2.00018790482477e-13f));
  p = hn::MulAdd(p, y2, hn::Set(d, -8.60467152213735e-11f));
  p = hn::MulAdd(p, y2, hn::Set(d, 5.12229709037114e-08f));
  p = hn::MulAdd(p, y2, hn::Set(d, 1.48572235717979e-05f));
  p = hn::MulAdd(p, y2, hn::Set(d, 6.37261928875436e-04f));
  p = hn::MulAdd(p, y2, hn::Set(d, 4.89352455891786e-03f));
  V q = hn::Set(d, 1.19825839466702e-06f);
  q = hn::MulAdd(q, y2, hn::Set(d, 1.18534705686654e-04f));
  q = hn::MulAdd(q, y2, hn::Set(d, 2.26843463243900e-03f));
  q = hn::MulAdd(q, y2, hn::Set(d, 4.89352518554385e-03f));
  const V t = hn::Mul(hn::Mul(y, p), internal::moderate_reciprocal(d, q));
  const V one = hn::Set(d, 1.0f);
  return hn::IfThenElse(hn::Ge(hn::Abs(x), hn::Set(d, 8.6f)), hn::CopySign(one, x), t);
}

// A rational function where it is not ±1.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf_of(D d, V x) {
  const V limit = hn::Set(d, 3.92f);
  const V y = at_least(at_most(x, limit), hn::Neg(limit));
  const V y2 = hn::Mul(y, y);
  V p = hn::Set(d, -2.72614225801306e-10f);
  p = hn::MulAdd(p, y2, hn::Set(d, 2.77068142495902e-08f));
  p = hn::MulAdd(p, y2, hn::Set(d, -2.10102402082508e-06f));
  p = hn::MulAdd(p, y2, hn::Set(d, -5.69250639462346e-05f));
  p = hn::MulAdd(p, y2, hn::Set(d, -7.34990630326855e-04f));
  p = hn::MulAdd(p, y2, hn::Set(d, -2.95459980854025e-03f));
  p = hn::MulAdd(p, y2, hn::Set(d, -1.60960333262415e-02f));
  V q = hn::Set(d, -1.45660718464996e-05f);
  q = hn::MulAdd(q, y2, hn::Set(d, -2.13374055278905e-04f));
  q = hn::MulAdd(q, y2, hn::Set(d, -1.68282697438203e-03f));
  q = hn::MulAdd(q, y2, hn::Set(d, -7.37332916720468e-03f));
  q = hn::MulAdd(q, y2, hn::Set(d, -1.42647390514189e-02f));
  const V e = hn::Mul(hn::Mul(y, p), internal::moderate_reciprocal(d, q));
  const V one = hn::Set(d, 1.0f);
  return hn::IfThenElse(hn::Ge(hn::Abs(x), limit), hn::CopySign(one, x), e);
}

// One activation known at compile time; a and b are its parameters. The formulas are the
// framework's, so that infinities come out alike.
template <ActivationKind kKind, class D, class V = hn::Vec<D>>
HWY_INLINE V activate(D d, V x, V a, V b) {
  (void)a;
  (void)b;
  const V zero = hn::Zero(d);
  if constexpr (kKind == ActivationKind::kNone) {
    return x;
  } else if constexpr (kKind == ActivationKind::kRelu) {
    return at_least(x, zero);
  } else if constexpr (kKind == ActivationKind::kClamp) {
    return at_most(at_least(x, a), b);
  } else if constexpr (kKind == ActivationKind::kLeakyRelu) {
    return hn::IfThenElse(hn::Gt(x, zero), x, hn::Mul(x, a));
  } else if constexpr (kKind == ActivationKind::kElu) {
    return hn::IfThenElse(hn::Gt(x, zero), x, hn::Mul(a, expm1_of_negative(d, at_most(x, zero))));
  } else if constexpr (kKind == ActivationKind::kHardSwish ||
                       kKind == ActivationKind::kHardSigmoid) {
    const V ramp = at_most(at_least(hn::Add(x, hn::Set(d, 3.0f)), zero), hn::Set(d, 6.0f));
    const V sixth = hn::Set(d, 1.0f / 6.0f);
    if constexpr (kKind == ActivationKind::kHardSigmoid) return hn::Mul(ramp, sixth);
    return hn::Mul(hn::Mul(x, ramp), sixth);
  } else if constexpr (kKind == ActivationKind::kSilu) {
    return hn::Mul(x, sigmoid_of(d, x));
  } else if constexpr (kKind == ActivationKind::kSigmoid) {
    return sigmoid_of(d, x);
  } else if constexpr (kKind == ActivationKind::kTanh) {
    return tanh_of(d, x);
  } else if constexpr (kKind == ActivationKind::kGeluErf) {
    const V e = erf_of(d, hn::Mul(x, hn::Set(d, 0.70710678118654752440f)));
    return hn::Mul(hn::Mul(x, hn::Set(d, 0.5f)), hn::Add(hn::Set(d, 1.0f), e));
  } else {
    static_assert(kKind == ActivationKind::kGeluTanh);
    const V cubic = hn::Mul(hn::Mul(x, x), x);
    const V inner =
        hn::Mul(hn::MulAdd(cubic, hn::Set(d, 0.044715f), x), hn::Set(d, 0.79788456080286535588f));
    const V t = tanh_of(d, inner);
    return hn::Mul(hn::Mul(x, hn::Set(d, 0.5f)), hn::Add(hn::Set(d, 1.0f), t));
  }
}

// Calls work<kKind>() for the kind at hand: `NIMBLE_VISIT_ACTIVATION(kind, work)` where `work` is a
// macro or template name taking the kind. A switch outside of the loop over elements.
#define NIMBLE_VISIT_ACTIVATION(kind, DO) \
  switch (kind) {                         \
    case ActivationKind::kNone:           \
      DO(ActivationKind::kNone);          \
      break;                              \
    case ActivationKind::kRelu:           \
      DO(ActivationKind::kRelu);          \
      break;                              \
    case ActivationKind::kClamp:          \
      DO(ActivationKind::kClamp);         \
      break;                              \
    case ActivationKind::kLeakyRelu:      \
      DO(ActivationKind::kLeakyRelu);     \
      break;                              \
    case ActivationKind::kElu:            \
      DO(ActivationKind::kElu);           \
      break;                              \
    case ActivationKind::kHardSwish:      \
      DO(ActivationKind::kHardSwish);     \
      break;                              \
    case ActivationKind::kHardSigmoid:    \
      DO(ActivationKind::kHardSigmoid);   \
      break;                              \
    case ActivationKind::kSilu:           \
      DO(ActivationKind::kSilu);          \
      break;                              \
    case ActivationKind::kSigmoid:        \
      DO(ActivationKind::kSigmoid);       \
      break;                              \
    case ActivationKind::kTanh:           \
      DO(ActivationKind::kTanh);          \
      break;                              \
    case ActivationKind::kGeluErf:        \
      DO(ActivationKind::kGeluErf);       \
      break;                              \
    case ActivationKind::kGeluTanh:       \
      DO(ActivationKind::kGeluTanh);      \
      break;                              \
  }

// Activates one vector, the kind known at run time only. Not in the innermost loop.
template <class D, class V = hn::Vec<D>>
HWY_NOINLINE V activate(D d, V x, const Activation& activation) {
  const V a = hn::Set(d, activation.a);
  const V b = hn::Set(d, activation.b);
#define NIMBLE_ACTIVATE(kind) x = activate<kind>(d, x, a, b)
  NIMBLE_VISIT_ACTIVATION(activation.kind, NIMBLE_ACTIVATE)
#undef NIMBLE_ACTIVATE
  return x;
}

// Activations that are a clamp to [low, high]: none, relu, clamp. Those cost two instructions and
// need no switch.
struct ClampBounds {
  float low = -__builtin_inff();
  float high = __builtin_inff();
};
inline bool is_clamp(const Activation& activation, ClampBounds& bounds) {
  bounds = ClampBounds();
  if (activation.kind == ActivationKind::kRelu) {
    bounds.low = 0;
  } else if (activation.kind == ActivationKind::kClamp) {
    bounds = {activation.a, activation.b};
  } else if (activation.kind != ActivationKind::kNone) {
    return false;
  }
  return true;
}

namespace internal {

template <ActivationKind kKind, class D>
void activate_rows(D d, const Activation& activation, float* row, size_t count, size_t rows,
                   int64_t stride) {
  const size_t lanes = hn::Lanes(d);
  const auto a = hn::Set(d, activation.a);
  const auto b = hn::Set(d, activation.b);
  for (; rows > 0; --rows, row += stride) {
    size_t i = 0;
    for (; i + lanes <= count; i += lanes)
      hn::StoreU(activate<kKind>(d, hn::LoadU(d, row + i), a, b), d, row + i);
    if (i < count)
      store_first(d, activate<kKind>(d, load_first(d, row + i, count - i), a, b), row + i,
                  count - i);
  }
}

}  // namespace internal

// Activates `count` floats in place, in each of several rows.
template <class D>
void activate_rows(D d, const Activation& activation, float* row, size_t count, size_t rows,
                   int64_t stride) {
#define NIMBLE_ACTIVATE(kind) internal::activate_rows<kind>(d, activation, row, count, rows, stride)
  if (activation.kind == ActivationKind::kNone) return;
  NIMBLE_VISIT_ACTIVATION(activation.kind, NIMBLE_ACTIVATE)
#undef NIMBLE_ACTIVATE
}
template <class D>
void activate_row(D d, const Activation& activation, float* row, size_t count) {
  activate_rows(d, activation, row, count, 1, 0);
}

// Adds `count` floats in place.
template <class D>
void add_row(D d, const float* addend, float* row, size_t count) {
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::Add(hn::LoadU(d, row + i), hn::LoadU(d, addend + i)), d, row + i);
  for (; i < count; ++i) row[i] += addend[i];
}

// last(first(x) + addend) in place, for rows whose bias is already in them. `addend` may be null.
template <class D>
void finish_rows(D d, const Epilogue& epilogue, const float* addend, int64_t addend_stride,
                 float* row, size_t count, size_t rows, int64_t stride) {
  activate_rows(d, epilogue.first, row, count, rows, stride);
  if (addend != nullptr)
    for (size_t m = 0; m < rows; ++m)
      add_row(d, addend + static_cast<int64_t>(m) * addend_stride,
              row + static_cast<int64_t>(m) * stride, count);
  activate_rows(d, epilogue.last, row, count, rows, stride);
}
template <class D>
void finish_row(D d, const Epilogue& epilogue, const float* addend, float* row, size_t count) {
  finish_rows(d, epilogue, addend, 0, row, count, 1, 0);
}

}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
