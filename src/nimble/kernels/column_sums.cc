// Sums down columns, by instruction set.
#include "nimble/kernels/column_sums.h"

#include <algorithm>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/column_sums.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D d;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(D()));
using Wide = hn::Repartition<double, D>;
using W = hn::Vec<Wide>;
constexpr Wide wide;

// So many floats are summed up as floats before they go into doubles.
constexpr int64_t kChunk = 16;

// A vector of floats as doubles.
struct Doubles {
  W low;
#if HWY_TARGET == HWY_SCALAR
  explicit HWY_INLINE Doubles(V x) : low(hn::PromoteTo(wide, x)) {}
#else
  W high;
  explicit HWY_INLINE Doubles(V x)
      : low(hn::PromoteTo(wide, hn::LowerHalf(hn::Half<D>(), x))),
        high(hn::PromoteTo(wide, hn::UpperHalf(hn::Half<D>(), x))) {}
#endif
};

HWY_INLINE void add_to(double* to, V x) {
  const Doubles more(x);
  hn::StoreU(hn::Add(hn::LoadU(wide, to), more.low), wide, to);
#if HWY_TARGET != HWY_SCALAR
  double* rest = to + kLanes / 2;
  hn::StoreU(hn::Add(hn::LoadU(wide, rest), more.high), wide, rest);
#endif
}

// Several sums at once, of neighbouring vectors or of every so many-th row: an addition takes a
// while.
template <int kVectors, int kSums>
HWY_INLINE void sum_vectors(const ColumnRows& rows, int64_t column, double* totals) {
  for (int64_t begin = 0; begin < rows.rows; begin += kChunk) {
    const int64_t count = std::min(kChunk, rows.rows - begin);
    const float* from = rows.from + begin * rows.row_stride + column;
    V sums[kVectors][kSums];
    HWY_UNROLL(8) for (auto& vector : sums) HWY_UNROLL(8) for (V& sum : vector) sum = hn::Zero(d);
    int64_t i = 0;
    for (; i + kSums <= count; i += kSums) {
      HWY_UNROLL(8)
      for (int s = 0; s < kSums; ++s, from += rows.row_stride) HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v)
        sums[v][s] = hn::Add(sums[v][s], hn::LoadU(d, from + v * kLanes));
    }
    for (; i < count; ++i, from += rows.row_stride) {
      HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v)
        sums[v][0] = hn::Add(sums[v][0], hn::LoadU(d, from + v * kLanes));
    }
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      V sum = sums[v][0];
      HWY_UNROLL(8) for (int s = 1; s < kSums; ++s) sum = hn::Add(sum, sums[v][s]);
      add_to(totals + column + v * kLanes, sum);
    }
  }
}

void sum_columns(const ColumnRows& rows, double* totals) {
  int64_t column = 0;
  for (; column + 4 * kLanes <= rows.columns; column += 4 * kLanes)
    sum_vectors<4, 1>(rows, column, totals);
  for (; column + 2 * kLanes <= rows.columns; column += 2 * kLanes)
    sum_vectors<2, 2>(rows, column, totals);
  for (; column + kLanes <= rows.columns; column += kLanes) sum_vectors<1, 4>(rows, column, totals);
  if (column == rows.columns) return;
  const auto left = static_cast<size_t>(rows.columns - column);
  for (int64_t begin = 0; begin < rows.rows; begin += kChunk) {
    V sum = hn::Zero(d);
    for (int64_t i = begin; i < std::min(begin + kChunk, rows.rows); ++i)
      sum = hn::Add(sum, load_first(d, rows.from + i * rows.row_stride + column, left));
    HWY_ALIGN float lanes[kLanes];
    hn::Store(sum, d, lanes);
    for (size_t i = 0; i < left; ++i) totals[column + static_cast<int64_t>(i)] += lanes[i];
  }
}

// Adds one vector of columns, whole or of the first `count` lanes.
template <bool kWhole>
HWY_INLINE void moments_of_vector(const ColumnRows& rows, int64_t column, size_t count,
                                  double* sums, double* squares) {
  const float* from = rows.from + column;
  // Two of each, as an addition takes a while.
  const V nothing = hn::Zero(d);
  Doubles sum[2] = {Doubles(nothing), Doubles(nothing)};
  Doubles square[2] = {Doubles(nothing), Doubles(nothing)};
  const auto add = [&](int which, const float* at) HWY_ATTR {
    const Doubles x(kWhole ? hn::LoadU(d, at) : load_first(d, at, count));
    sum[which].low = hn::Add(sum[which].low, x.low);
    square[which].low = hn::MulAdd(x.low, x.low, square[which].low);
#if HWY_TARGET != HWY_SCALAR
    sum[which].high = hn::Add(sum[which].high, x.high);
    square[which].high = hn::MulAdd(x.high, x.high, square[which].high);
#endif
  };
  int64_t i = 0;
  for (; i + 2 <= rows.rows; i += 2, from += 2 * rows.row_stride) {
    add(0, from);
    add(1, from + rows.row_stride);
  }
  if (i < rows.rows) add(0, from);
  const auto store = [](double* to, W first, W second) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(wide, to), hn::Add(first, second)), wide, to);
  };
  store(sums, sum[0].low, sum[1].low);
  store(squares, square[0].low, square[1].low);
#if HWY_TARGET != HWY_SCALAR
  store(sums + kLanes / 2, sum[0].high, sum[1].high);
  store(squares + kLanes / 2, square[0].high, square[1].high);
#endif
}

void sum_moments(const ColumnRows& rows, double* sums, double* squares) {
  int64_t column = 0;
  for (; column + kLanes <= rows.columns; column += kLanes)
    moments_of_vector<true>(rows, column, 0, sums + column, squares + column);
  if (column == rows.columns) return;
  const int64_t left = rows.columns - column;
  double last_sums[kLanes] = {};
  double last_squares[kLanes] = {};
  moments_of_vector<false>(rows, column, static_cast<size_t>(left), last_sums, last_squares);
  for (int64_t i = 0; i < left; ++i) {
    sums[column + i] += last_sums[i];
    squares[column + i] += last_squares[i];
  }
}

ColumnSums select_sums() {
  return sum_columns;
}
ColumnMoments select_moments() {
  return sum_moments;
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {

HWY_EXPORT(select_sums);
HWY_EXPORT(select_moments);
ColumnSums column_sums() {
  return HWY_DYNAMIC_DISPATCH(select_sums)();
}
ColumnMoments column_moments() {
  return HWY_DYNAMIC_DISPATCH(select_moments)();
}

}  // namespace nimble
#endif
