// The loops of chains over dense runs, by instruction set.
#include "nimble/kernels/chain_steps.h"

#include <cmath>
#include <cstdint>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/chain_steps.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/activation_gradient-inl.h"
#include "nimble/kernels/epilogue-inl.h"
#include "nimble/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D d;

// What a loop does to one vector of each operand. Constants are broadcast once, before the loop.
#define NIMBLE_CHAIN_OP(Name, kOperands, expression)                             \
  struct Name {                                                                  \
    static constexpr int kArity = kOperands;                                     \
    explicit Name(const ChainLoop& loop)                                         \
        : value(hn::Set(d, loop.step.value)), addend(hn::Set(d, loop.addend)) {} \
    HWY_INLINE V operator()([[maybe_unused]] V x, [[maybe_unused]] V y,          \
                            [[maybe_unused]] V z) const {                        \
      return expression;                                                         \
    }                                                                            \
    V value;                                                                     \
    V addend;                                                                    \
  };

HWY_INLINE V one() {
  return hn::Set(d, 1.0f);
}

template <class M>
HWY_INLINE V one_where(M mask) {
  return hn::IfThenElseZero(mask, one());
}

// From the nearer end, as the framework does.
HWY_INLINE V lerp(V start, V end, V weight) {
  const auto near = hn::Lt(hn::Abs(weight), hn::Set(d, 0.5f));
  const V factor = hn::IfThenElse(near, weight, hn::Sub(weight, one()));
  return hn::MulAdd(factor, hn::Sub(end, start), hn::IfThenElse(near, start, end));
}

NIMBLE_CHAIN_OP(Move, 1, x)
NIMBLE_CHAIN_OP(Add, 2, hn::Add(x, y))
NIMBLE_CHAIN_OP(Sub, 2, hn::Sub(x, y))
NIMBLE_CHAIN_OP(Mul, 2, hn::Mul(x, y))
NIMBLE_CHAIN_OP(Div, 2, hn::Div(x, y))
NIMBLE_CHAIN_OP(Maximum, 2, math::maximum(x, y))
NIMBLE_CHAIN_OP(Minimum, 2, math::minimum(x, y))
NIMBLE_CHAIN_OP(Pow, 2, math::pow(d, x, y))
NIMBLE_CHAIN_OP(Less, 2, one_where(hn::Lt(x, y)))
NIMBLE_CHAIN_OP(LessEqual, 2, one_where(hn::Le(x, y)))
NIMBLE_CHAIN_OP(Equal, 2, one_where(hn::Eq(x, y)))
NIMBLE_CHAIN_OP(LerpScalar, 2, lerp(x, y, value))
NIMBLE_CHAIN_OP(Lerp, 3, lerp(x, y, z))
NIMBLE_CHAIN_OP(Select, 3, hn::IfThenElse(hn::Eq(x, hn::Zero(d)), z, y))
NIMBLE_CHAIN_OP(AddMul, 3, hn::Add(x, hn::Mul(hn::Mul(value, y), z)))
NIMBLE_CHAIN_OP(AddDiv, 3, hn::Add(x, hn::Div(hn::Mul(value, y), z)))
NIMBLE_CHAIN_OP(MulAdd, 3, hn::MulAdd(x, y, z))
NIMBLE_CHAIN_OP(MulThenAdd, 3, hn::Add(hn::Mul(x, y), z))
NIMBLE_CHAIN_OP(AddThenAdd, 3, hn::Add(hn::Add(x, y), z))
NIMBLE_CHAIN_OP(SubThenMul, 3, hn::Mul(hn::Sub(x, y), z))
NIMBLE_CHAIN_OP(AddScalar, 1, hn::Add(x, value))
NIMBLE_CHAIN_OP(MulScalar, 1, hn::Mul(x, value))
NIMBLE_CHAIN_OP(Affine, 1, hn::Add(hn::Mul(x, value), addend))
NIMBLE_CHAIN_OP(PowScalar, 1, math::pow(d, x, value))
NIMBLE_CHAIN_OP(RsubScalar, 1, hn::Sub(value, x))
NIMBLE_CHAIN_OP(RdivScalar, 1, hn::Div(value, x))
NIMBLE_CHAIN_OP(LessScalar, 1, one_where(hn::Lt(x, value)))
NIMBLE_CHAIN_OP(LessEqualScalar, 1, one_where(hn::Le(x, value)))
NIMBLE_CHAIN_OP(GreaterScalar, 1, one_where(hn::Gt(x, value)))
NIMBLE_CHAIN_OP(GreaterEqualScalar, 1, one_where(hn::Ge(x, value)))
NIMBLE_CHAIN_OP(EqualScalar, 1, one_where(hn::Eq(x, value)))
NIMBLE_CHAIN_OP(Neg, 1, hn::Neg(x))
NIMBLE_CHAIN_OP(Abs, 1, hn::Abs(x))
NIMBLE_CHAIN_OP(Square, 1, hn::Mul(x, x))
NIMBLE_CHAIN_OP(Cube, 1, hn::Mul(hn::Mul(x, x), x))
NIMBLE_CHAIN_OP(InverseSquare, 1, hn::Div(one(), hn::Mul(x, x)))
NIMBLE_CHAIN_OP(Reciprocal, 1, hn::Div(one(), x))
NIMBLE_CHAIN_OP(Exp, 1, exp_of(d, x))
NIMBLE_CHAIN_OP(Log, 1, math::log(d, x))
NIMBLE_CHAIN_OP(Sqrt, 1, hn::Sqrt(x))
NIMBLE_CHAIN_OP(Rsqrt, 1, hn::Div(one(), hn::Sqrt(x)))
NIMBLE_CHAIN_OP(Erf, 1, erf_of(d, x))
NIMBLE_CHAIN_OP(Sin, 1, math::sin(d, x))
NIMBLE_CHAIN_OP(Cos, 1, math::cos(d, x))
#undef NIMBLE_CHAIN_OP

template <ActivationKind kKind>
struct Activate {
  static constexpr int kArity = 1;
  explicit Activate(const ChainLoop& loop)
      : a(hn::Set(d, loop.step.activation.a)), b(hn::Set(d, loop.step.activation.b)) {}
  HWY_INLINE V operator()(V x, V, V) const { return activate<kKind>(d, x, a, b); }
  V a;
  V b;
};

template <ActivationKind kKind>
struct Gradient {
  static constexpr int kArity = 2;
  explicit Gradient(const ChainLoop& loop)
      : a(hn::Set(d, loop.step.activation.a)), b(hn::Set(d, loop.step.activation.b)) {}
  HWY_INLINE V operator()(V x, V y, V) const { return activation_gradient<kKind>(d, x, y, a, b); }
  V a;
  V b;
};

template <class Op>
struct Clamped {
  static constexpr int kArity = Op::kArity;
  explicit Clamped(const ChainLoop& loop)
      : op(loop), low(hn::Set(d, loop.low)), high(hn::Set(d, loop.high)) {}
  HWY_INLINE V operator()(V x, V y, V z) const { return at_most(at_least(op(x, y, z), low), high); }
  Op op;
  V low;
  V high;
};

template <class Op>
void run_loop(const ChainLoop& loop, const ChainLoopArguments& a) {
  const Op op(loop);
  const size_t lanes = hn::Lanes(d);
  const V none = hn::Zero(d);
  const auto at = [&](size_t i) HWY_ATTR {
    const V x = hn::LoadU(d, a.x + i);
    const V y = Op::kArity > 1 ? hn::LoadU(d, a.y + i) : none;
    const V z = Op::kArity > 2 ? hn::LoadU(d, a.z + i) : none;
    return op(x, y, z);
  };
  size_t i = 0;
  for (; i + 2 * lanes <= a.count; i += 2 * lanes) {
    const V first = at(i);
    const V second = at(i + lanes);
    hn::StoreU(first, d, a.out + i);
    hn::StoreU(second, d, a.out + i + lanes);
  }
  while (i < a.count) {
    const size_t count = a.count - i < lanes ? a.count - i : lanes;
    const V x = load_first(d, a.x + i, count);
    const V y = Op::kArity > 1 ? load_first(d, a.y + i, count) : none;
    const V z = Op::kArity > 2 ? load_first(d, a.z + i, count) : none;
    store_first(d, op(x, y, z), a.out + i, count);
    i += count;
  }
}

// Ops of little work may have a clamp behind them.
template <class Op>
ChainLoopFunction with_clamp(const ChainLoop& loop) {
  return loop.clamps ? run_loop<Clamped<Op>> : run_loop<Op>;
}

ChainLoopFunction power_function(const ChainLoop& loop) {
  const float exponent = loop.step.value;  // as in the framework, these are not computed as powers
  if (exponent == 2) return run_loop<Square>;
  if (exponent == 3) return run_loop<Cube>;
  if (exponent == -1) return run_loop<Reciprocal>;
  if (exponent == -2) return run_loop<InverseSquare>;
  if (exponent == 0.5f) return run_loop<Sqrt>;
  if (exponent == -0.5f) return run_loop<Rsqrt>;
  return run_loop<PowScalar>;
}

ChainLoopFunction activation_function(ActivationKind kind) {
#define NIMBLE_ACTIVATION_LOOP(kKind) return run_loop<Activate<kKind>>
  NIMBLE_VISIT_ACTIVATION(kind, NIMBLE_ACTIVATION_LOOP)
#undef NIMBLE_ACTIVATION_LOOP
  return nullptr;
}

ChainLoopFunction gradient_function(ActivationKind kind) {
#define NIMBLE_GRADIENT_LOOP(kKind) return run_loop<Gradient<kKind>>
  NIMBLE_VISIT_ACTIVATION(kind, NIMBLE_GRADIENT_LOOP)
#undef NIMBLE_GRADIENT_LOOP
  return nullptr;
}

ChainLoopFunction step_function(const ChainLoop& loop) {
  switch (loop.step.op) {
    case ChainOp::kAdd:
      return with_clamp<Add>(loop);
    case ChainOp::kSub:
      return with_clamp<Sub>(loop);
    case ChainOp::kMul:
      return with_clamp<Mul>(loop);
    case ChainOp::kDiv:
      return run_loop<Div>;
    case ChainOp::kMaximum:
      return run_loop<Maximum>;
    case ChainOp::kMinimum:
      return run_loop<Minimum>;
    case ChainOp::kPow:
      return run_loop<Pow>;
    case ChainOp::kLess:
      return run_loop<Less>;
    case ChainOp::kLessEqual:
      return run_loop<LessEqual>;
    case ChainOp::kEqual:
      return run_loop<Equal>;
    case ChainOp::kLerpScalar:
      return run_loop<LerpScalar>;
    case ChainOp::kActivationGradient:
      return gradient_function(loop.step.activation.kind);
    case ChainOp::kMulAdd:
      return with_clamp<MulAdd>(loop);
    case ChainOp::kSelect:
      return run_loop<Select>;
    case ChainOp::kAddMul:
      return run_loop<AddMul>;
    case ChainOp::kAddDiv:
      return run_loop<AddDiv>;
    case ChainOp::kLerp:
      return run_loop<Lerp>;
    case ChainOp::kAddScalar:
      return with_clamp<AddScalar>(loop);
    case ChainOp::kMulScalar:
      return with_clamp<MulScalar>(loop);
    case ChainOp::kPowScalar:
      return power_function(loop);
    case ChainOp::kRsubScalar:
      return run_loop<RsubScalar>;
    case ChainOp::kRdivScalar:
      return run_loop<RdivScalar>;
    case ChainOp::kLessScalar:
      return run_loop<LessScalar>;
    case ChainOp::kLessEqualScalar:
      return run_loop<LessEqualScalar>;
    case ChainOp::kGreaterScalar:
      return run_loop<GreaterScalar>;
    case ChainOp::kGreaterEqualScalar:
      return run_loop<GreaterEqualScalar>;
    case ChainOp::kEqualScalar:
      return run_loop<EqualScalar>;
    case ChainOp::kNeg:
      return run_loop<Neg>;
    case ChainOp::kAbs:
      return run_loop<Abs>;
    case ChainOp::kSquare:
      return run_loop<Square>;
    case ChainOp::kReciprocal:
      return run_loop<Reciprocal>;
    case ChainOp::kExp:
      return run_loop<Exp>;
    case ChainOp::kLog:
      return run_loop<Log>;
    case ChainOp::kSqrt:
      return run_loop<Sqrt>;
    case ChainOp::kRsqrt:
      return run_loop<Rsqrt>;
    case ChainOp::kErf:
      return run_loop<Erf>;
    case ChainOp::kSin:
      return run_loop<Sin>;
    case ChainOp::kCos:
      return run_loop<Cos>;
    case ChainOp::kActivation:
      return activation_function(loop.step.activation.kind);
  }
  return nullptr;
}

ChainLoopFunction loop_function(const ChainLoop& loop) {
  switch (loop.form) {
    case ChainLoop::Form::kStep:
      return step_function(loop);
    case ChainLoop::Form::kMove:
      return run_loop<Move>;
    case ChainLoop::Form::kMulThenAdd:
      return with_clamp<MulThenAdd>(loop);
    case ChainLoop::Form::kAddThenAdd:
      return with_clamp<AddThenAdd>(loop);
    case ChainLoop::Form::kSubThenMul:
      return with_clamp<SubThenMul>(loop);
    case ChainLoop::Form::kAffine:
      return with_clamp<Affine>(loop);
  }
  return nullptr;
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {

HWY_EXPORT(loop_function);
ChainLoopFunction chain_loop_function(const ChainLoop& loop) {
  return HWY_DYNAMIC_DISPATCH(loop_function)(loop);
}

}  // namespace nimble
#endif
