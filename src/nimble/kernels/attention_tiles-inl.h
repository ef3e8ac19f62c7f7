// Per-target: the products and transpositions of attention.cc.
#if defined(NIMBLE_KERNELS_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIMBLE_KERNELS_ATTENTION_TILES_INL_H_
#undef NIMBLE_KERNELS_ATTENTION_TILES_INL_H_
#else
#define NIMBLE_KERNELS_ATTENTION_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "nimble/kernels/vector_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace attention {

// A tile of a product in registers: kRows * kVectors accumulators.
#if HWY_TARGET <= HWY_AVX3
constexpr size_t kRows = 8;
constexpr size_t kVectors = 3;
#elif HWY_TARGET == HWY_SCALAR
constexpr size_t kRows = 1;
constexpr size_t kVectors = 2;
#else
constexpr size_t kRows = 4;
constexpr size_t kVectors = 2;
#endif
constexpr size_t kBlock = kVectors * kLanes;  // queries
static_assert(kLanes % kRows == 0);

inline size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Calls visit with n, at most kVectors, as a constant of its type.
template <class Visit>
HWY_INLINE void with_vectors(size_t n, const Visit& visit) {
  if (n == 1) return visit(std::integral_constant<size_t, 1>());
  if constexpr (kVectors == 2) return visit(std::integral_constant<size_t, 2>());
  if (n == 2) return visit(std::integral_constant<size_t, 2>());
  visit(std::integral_constant<size_t, kVectors>());
}

// The left factor of a product: row r at step k is at[r * row + k * step].
struct Left {
  const float* at;
  size_t row;
  size_t step;
};

// Calls store(row, vector, value) for each of the tile's results: start(row, vector) + sum over k
// of left(row, k) * right[k * width + vector]; the right factor has rows of n vectors.
template <size_t n, class Start, class Store>
HWY_INLINE void multiply_tile(const Left& left, const float* HWY_RESTRICT right, size_t depth,
                              const Start& start, const Store& store) {
  const FloatTag d;
  FloatVector sums[kRows][n];
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (size_t v = 0; v < n; ++v) sums[r][v] = start(r, v);
  }
  const float* a = left.at;
  for (size_t k = 0; k < depth; ++k) {
    FloatVector b[n];
    HWY_UNROLL(8)
    for (size_t v = 0; v < n; ++v) b[v] = hn::Load(d, right + v * kLanes);
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, a[r * left.row]);
      HWY_UNROLL(8)
      for (size_t v = 0; v < n; ++v) sums[r][v] = hn::MulAdd(factor, b[v], sums[r][v]);
    }
    right += n * kLanes;
    a += left.step;
  }
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (size_t v = 0; v < n; ++v) store(r, v, sums[r][v]);
  }
}

#if HWY_TARGET != HWY_SCALAR
// Four elements of each of the rows row, row + 4, row + 8 …: a block of the vector from each.
template <size_t kCount>
HWY_INLINE auto load_blocks(const float* from, int64_t stride, size_t row, size_t rows) {
  const hn::FixedTag<float, kCount> d;
  if constexpr (kCount == 4) {
    return hn::LoadU(d, from + static_cast<int64_t>(std::min(row, rows - 1)) * stride);
  } else {
    const auto low = load_blocks<kCount / 2>(from, stride, row, rows);
    return hn::Combine(d, load_blocks<kCount / 2>(from, stride, row + kCount / 2, rows), low);
  }
}
#endif

// Calls visit(column, vector) for each column of a matrix of at most a vector's rows; lanes behind
// them have some row's element.
template <class Visit>
HWY_INLINE void for_each_column(const float* from, int64_t row_stride, int64_t column_stride,
                                size_t rows, size_t columns, const Visit& visit) {
  const FloatTag d;
  size_t c = 0;
#if HWY_TARGET != HWY_SCALAR
  if (column_stride == 1) {
    const hn::RepartitionToWide<FloatTag> wide;
    for (; c + 4 <= columns; c += 4) {
      const auto x0 = load_blocks<kLanes>(from + c, row_stride, 0, rows);
      const auto x1 = load_blocks<kLanes>(from + c, row_stride, 1, rows);
      const auto x2 = load_blocks<kLanes>(from + c, row_stride, 2, rows);
      const auto x3 = load_blocks<kLanes>(from + c, row_stride, 3, rows);
      // Each block of four lanes is transposed.
      const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, x0, x1));
      const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, x2, x3));
      const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, x0, x1));
      const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, x2, x3));
      visit(c + 0, hn::BitCast(d, hn::InterleaveLower(wide, low01, low23)));
      visit(c + 1, hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23)));
      visit(c + 2, hn::BitCast(d, hn::InterleaveLower(wide, high01, high23)));
      visit(c + 3, hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23)));
    }
  }
#endif
  for (; c < columns; ++c) {
    HWY_ALIGN float lanes[kLanes];
    for (size_t r = 0; r < kLanes; ++r)
      lanes[r] = from[static_cast<int64_t>(std::min(r, rows - 1)) * row_stride +
                      static_cast<int64_t>(c) * column_stride];
    visit(c, hn::Load(d, lanes));
  }
}

}  // namespace attention
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
