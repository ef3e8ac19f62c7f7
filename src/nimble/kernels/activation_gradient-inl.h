// Per-target: gradients of activations.
#if defined(NIMBLE_KERNELS_ACTIVATION_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIMBLE_KERNELS_ACTIVATION_GRADIENT_INL_H_
#undef NIMBLE_KERNELS_ACTIVATION_GRADIENT_INL_H_
#else
#define NIMBLE_KERNELS_ACTIVATION_GRADIENT_INL_H_
#endif

#include <hwy/highway.h>

#include "nimble/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// As ChainOp::kActivationGradient says; `g` is the gradient behind the activation, a and b are the
// activation's parameters.
template <ActivationKind kKind, class D, class V = hn::Vec<D>>
HWY_INLINE V activation_gradient(D d, V g, V y, V a, V b) {
  (void)a;
  (void)b;
  const V zero = hn::Zero(d);
  const V one = hn::Set(d, 1.0f);
  const V half = hn::Set(d, 0.5f);
  const V three = hn::Set(d, 3.0f);
  if constexpr (kKind == ActivationKind::kNone) {
    return g;
  } else if constexpr (kKind == ActivationKind::kRelu) {
    return hn::IfThenZeroElse(hn::Le(y, a), g);
  } else if constexpr (kKind == ActivationKind::kClamp) {
    return hn::IfThenElseZero(hn::And(hn::Gt(y, a), hn::Lt(y, b)), g);
  } else if constexpr (kKind == ActivationKind::kLeakyRelu) {
    return hn::IfThenElse(hn::Gt(y, zero), g, hn::Mul(g, a));
  } else if constexpr (kKind == ActivationKind::kElu) {
    return hn::IfThenElse(hn::Gt(y, zero), g, hn::Mul(hn::Mul(g, a), exp_of(d, at_most(y, zero))));
  } else if constexpr (kKind == ActivationKind::kHardSwish) {
    const V ramp = hn::Mul(g, hn::Add(hn::Mul(y, hn::Set(d, 1.0f / 3.0f)), half));
    return hn::IfThenZeroElse(hn::Le(y, hn::Neg(three)), hn::IfThenElse(hn::Ge(y, three), g, ramp));
  } else if constexpr (kKind == ActivationKind::kHardSigmoid) {
    return hn::IfThenElseZero(hn::Lt(hn::Abs(y), three), hn::Mul(g, hn::Set(d, 1.0f / 6.0f)));
  } else if constexpr (kKind == ActivationKind::kSilu) {
    const V s = sigmoid_of(d, y);
    // y - y makes NaN of infinities, as the framework's formula does: s may be next to 1 only.
    const V rest = hn::Add(one, hn::Sub(y, y));
    return hn::Mul(hn::Mul(g, s), hn::MulAdd(y, hn::Sub(one, s), rest));
  } else if constexpr (kKind == ActivationKind::kSigmoid) {
    return hn::Mul(hn::Mul(g, hn::Sub(one, y)), y);
  } else if constexpr (kKind == ActivationKind::kTanh) {
    return hn::Mul(g, hn::NegMulAdd(y, y, one));
  } else if constexpr (kKind == ActivationKind::kGeluErf) {
    const V e = erf_of(d, hn::Mul(y, hn::Set(d, 0.70710678118654752440f)));
    const V cdf = hn::Mul(half, hn::Add(one, e));
    const V pdf = hn::Mul(exp_of(d, hn::Mul(hn::Mul(y, y), hn::Set(d, -0.5f))),
                          hn::Set(d, 0.39894228040143267794f));
    return hn::Mul(g, hn::Add(cdf, hn::Mul(y, pdf)));
  } else {
    static_assert(kKind == ActivationKind::kGeluTanh);
    const V beta = hn::Set(d, 0.79788456080286535588f);
    const V square = hn::Mul(y, y);
    const V inner = hn::Mul(hn::MulAdd(hn::Mul(square, y), hn::Set(d, 0.044715f), y), beta);
    const V t = tanh_of(d, inner);
    const V slope = hn::Mul(beta, hn::MulAdd(square, hn::Set(d, 3 * 0.044715f), one));
    const V right = hn::Mul(hn::Mul(hn::Mul(half, y), hn::NegMulAdd(t, t, one)), slope);
    return hn::Mul(g, hn::MulAdd(half, hn::Add(one, t), right));
  }
}

}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
