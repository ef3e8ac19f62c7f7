// Reductions of runs of outputs, by instruction set.
#include "nimble/kernels/reduce_runs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/reduce_runs.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/epilogue-inl.h"
#include "nimble/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D d;
constexpr size_t kLanes = hn::MaxLanes(D());
static_assert(!HWY_HAVE_SCALABLE);

// So many floats are summed up as floats before they go into doubles: less rounding than the
// framework's cascade of sums.
constexpr int64_t kChunk = 16;

// One double per lane.
struct WideSum {
  using Wide = hn::Repartition<double, D>;
  hn::Vec<Wide> low;
#if HWY_TARGET == HWY_SCALAR
  HWY_INLINE WideSum() : low(hn::Zero(Wide())) {}
#else
  hn::Vec<Wide> high;
  HWY_INLINE WideSum() : low(hn::Zero(Wide())), high(hn::Zero(Wide())) {}
#endif
  HWY_INLINE void add(V x) {
#if HWY_TARGET == HWY_SCALAR
    low = hn::Add(low, hn::PromoteTo(Wide(), x));
#else
    const hn::Half<D> half;
    low = hn::Add(low, hn::PromoteTo(Wide(), hn::LowerHalf(half, x)));
    high = hn::Add(high, hn::PromoteTo(Wide(), hn::UpperHalf(half, x)));
#endif
  }
  HWY_INLINE void store(double* to) const {
    hn::Store(low, Wide(), to);
#if HWY_TARGET != HWY_SCALAR
    hn::Store(high, Wide(), to + kLanes / 2);
#endif
  }
};

template <Reduce::Kind kKind>
struct Sums {
  using Total = WideSum;
  static constexpr double kNeutral = 0;
  static HWY_INLINE V neutral() { return hn::Zero(d); }
  static HWY_INLINE V combine(V sum, V x) { return hn::Add(sum, x); }
  static double combine(double sum, double x) { return sum + x; }
  static float finish(double sum, int64_t count) {
    return static_cast<float>(kKind == Reduce::Kind::kMean ? sum / static_cast<double>(count)
                                                           : sum);
  }
};

template <Reduce::Kind kKind>
struct Extremes {
  static constexpr bool kMax = kKind == Reduce::Kind::kMax;
  static constexpr double kNeutral =
      kMax ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  static HWY_INLINE V neutral() { return hn::Set(d, static_cast<float>(kNeutral)); }
  static HWY_INLINE V combine(V best, V x) {
    return kMax ? math::maximum(best, x) : math::minimum(best, x);
  }
  static double combine(double best, double x) {
    if (std::isnan(best)) return best;
    return (kMax ? best >= x : best <= x) ? best : x;  // x if that is NaN
  }
  static float finish(double best, int64_t) { return static_cast<float>(best); }

  struct Total {
    V best;
    HWY_INLINE Total() : best(neutral()) {}
    HWY_INLINE void add(V x) { best = combine(best, x); }
    HWY_INLINE void store(double* to) const {
      alignas(64) float lanes[kLanes];
      hn::Store(best, d, lanes);
      for (size_t i = 0; i < kLanes; ++i) to[i] = lanes[i];
    }
  };
};

// Calls visit(offset) for each index of the first `count` loops.
template <class Visit>
HWY_INLINE void for_each_offset(const ReducedLoops& loops, size_t count, const Visit& visit) {
  std::array<int64_t, ReducedLoops::kMax> index = {};
  int64_t offset = 0;
  while (true) {
    visit(offset);
    size_t loop = count;
    while (loop-- > 0) {
      offset += loops.strides[loop];
      if (++index[loop] < loops.sizes[loop]) break;
      offset -= index[loop] * loops.strides[loop];
      index[loop] = 0;
    }
    if (loop == static_cast<size_t>(-1)) return;
  }
}

// Outputs side by side, as their inputs are: kVectors vectors of them at once, or one of `valid`
// lanes.
template <class Op, size_t kVectors, bool kPartial>
HWY_INLINE void reduce_columns(const ReduceRun& run, int64_t at, size_t valid) {
  const ReducedLoops& loops = *run.loops;
  const size_t lanes = hn::Lanes(d);
  typename Op::Total totals[kVectors];
  const int64_t inner = loops.sizes[loops.count - 1];
  const int64_t stride = loops.strides[loops.count - 1];
  for_each_offset(loops, loops.count - 1, [&](int64_t offset) HWY_ATTR {
    const float* from = run.from + at + offset;
    for (int64_t begin = 0; begin < inner; begin += kChunk) {
      const int64_t end = std::min(begin + kChunk, inner);
      V parts[kVectors];
      HWY_UNROLL(8) for (V& part : parts) part = Op::neutral();
      for (int64_t i = begin; i < end; ++i, from += stride) {
        HWY_UNROLL(8)
        for (size_t v = 0; v < kVectors; ++v)
          parts[v] = Op::combine(parts[v], kPartial ? load_first(d, from + v * lanes, valid)
                                                    : hn::LoadU(d, from + v * lanes));
      }
      HWY_UNROLL(8) for (size_t v = 0; v < kVectors; ++v) totals[v].add(parts[v]);
    }
  });
  const int64_t count = loops.elements();
  float* to = run.to + at * run.to_stride;
  alignas(64) double results[kVectors * kLanes];
  HWY_UNROLL(8) for (size_t v = 0; v < kVectors; ++v) totals[v].store(results + v * lanes);
  for (size_t i = 0; i < (kPartial ? valid : kVectors * lanes); ++i)
    to[static_cast<int64_t>(i) * run.to_stride] = Op::finish(results[i], count);
}

template <class Op>
void reduce_side_by_side(const ReduceRun& run) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t at = 0;
  // Few passes over the input: widths of networks are often six or eight vectors.
  while (at + lanes <= run.run) {
    const int64_t vectors = (run.run - at) / lanes;
    if (vectors >= 8) {
      reduce_columns<Op, 8, false>(run, at, 0);
      at += 8 * lanes;
    } else if (vectors >= 6) {
      reduce_columns<Op, 6, false>(run, at, 0);
      at += 6 * lanes;
    } else if (vectors >= 4) {
      reduce_columns<Op, 4, false>(run, at, 0);
      at += 4 * lanes;
    } else {
      reduce_columns<Op, 1, false>(run, at, 0);
      at += lanes;
    }
  }
  if (at < run.run) reduce_columns<Op, 1, true>(run, at, static_cast<size_t>(run.run - at));
}

// Elements of an output side by side.
template <class Op>
double reduce_dense(const float* from, const ReducedLoops& loops) {
  constexpr int64_t kVectors = 4;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t inner = loops.sizes[loops.count - 1];
  typename Op::Total total;
  for_each_offset(loops, loops.count - 1, [&](int64_t offset) HWY_ATTR {
    const float* p = from + offset;
    for (int64_t i = 0; i < inner;) {
      V a = Op::neutral();
      V b = a, c = a, e = a;
      const int64_t end = std::min(inner, i + kChunk * kVectors * lanes);
      for (; i + kVectors * lanes <= end; i += kVectors * lanes) {
        a = Op::combine(a, hn::LoadU(d, p + i));
        b = Op::combine(b, hn::LoadU(d, p + i + lanes));
        c = Op::combine(c, hn::LoadU(d, p + i + 2 * lanes));
        e = Op::combine(e, hn::LoadU(d, p + i + 3 * lanes));
      }
      for (; i + lanes <= end; i += lanes) a = Op::combine(a, hn::LoadU(d, p + i));
      if (i < end) {
        const size_t left = static_cast<size_t>(end - i);
        b = Op::combine(
            b, hn::IfThenElse(hn::FirstN(d, left), load_first(d, p + i, left), Op::neutral()));
        i = end;
      }
      total.add(Op::combine(Op::combine(a, b), Op::combine(c, e)));
    }
  });
  alignas(64) double lane_totals[kLanes];
  total.store(lane_totals);
  for (size_t half = kLanes / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i)
      lane_totals[i] = Op::combine(lane_totals[i], lane_totals[i + half]);
  return lane_totals[0];
}

template <class Op>
void reduce_each_dense(const ReduceRun& run) {
  const int64_t count = run.loops->elements();
  for (int64_t i = 0; i < run.run; ++i)
    run.to[i * run.to_stride] =
        Op::finish(reduce_dense<Op>(run.from + i * run.from_stride, *run.loops), count);
}

template <class Op>
void reduce_strided(const ReduceRun& run) {
  const int64_t count = run.loops->elements();
  for (int64_t i = 0; i < run.run; ++i) {
    const float* from = run.from + i * run.from_stride;
    double total = Op::kNeutral;
    for_each_offset(*run.loops, run.loops->count,
                    [&](int64_t offset) { total = Op::combine(total, from[offset]); });
    run.to[i * run.to_stride] = Op::finish(total, count);
  }
}

template <class Op>
void reduce_nothing(const ReduceRun& run) {
  for (int64_t i = 0; i < run.run; ++i) run.to[i * run.to_stride] = Op::finish(Op::kNeutral, 0);
}

template <class Op>
ReduceFunction function_for(const ReducedLoops& loops, int64_t from_stride) {
  if (loops.elements() == 0) return reduce_nothing<Op>;
  const int64_t inner_stride = loops.strides[loops.count - 1];
  if (inner_stride == 1) return reduce_each_dense<Op>;
  if (from_stride == 1) return reduce_side_by_side<Op>;
  return reduce_strided<Op>;
}

ReduceFunction select_reduction(Reduce::Kind kind, const ReducedLoops& loops, int64_t from_stride) {
  switch (kind) {
    case Reduce::Kind::kSum:
      return function_for<Sums<Reduce::Kind::kSum>>(loops, from_stride);
    case Reduce::Kind::kMean:
      return function_for<Sums<Reduce::Kind::kMean>>(loops, from_stride);
    case Reduce::Kind::kMax:
      return function_for<Extremes<Reduce::Kind::kMax>>(loops, from_stride);
    case Reduce::Kind::kMin:
      return function_for<Extremes<Reduce::Kind::kMin>>(loops, from_stride);
  }
  return nullptr;
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {

HWY_EXPORT(select_reduction);
ReduceFunction reduce_function(Reduce::Kind kind, const ReducedLoops& loops, int64_t from_stride) {
  return HWY_DYNAMIC_DISPATCH(select_reduction)(kind, loops, from_stride);
}

}  // namespace nimble
#endif
