// Copies of rectangles, by instruction set.
#include "nimble/kernels/copy_tiles.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/copy_tiles.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

// Any strides, in squares that stay in the cache whichever side is dense.
template <class T>
void copy_strided(const CopyTile& tile) {
  constexpr int64_t kSide = 32;
  const T* from = static_cast<const T*>(tile.from);
  T* to = static_cast<T*>(tile.to);
  for (int64_t row = 0; row < tile.rows; row += kSide) {
    const int64_t row_end = std::min(row + kSide, tile.rows);
    for (int64_t at = 0; at < tile.run; at += kSide) {
      const int64_t end = std::min(at + kSide, tile.run);
      for (int64_t r = row; r < row_end; ++r)
        for (int64_t i = at; i < end; ++i)
          to[r * tile.to_row_stride + i * tile.to_run_stride] =
              from[r * tile.from_row_stride + i * tile.from_run_stride];
    }
  }
}

template <class T>
void fill_runs(const CopyTile& tile) {
  const T* from = static_cast<const T*>(tile.from);
  T* to = static_cast<T*>(tile.to);
  for (int64_t r = 0; r < tile.rows; ++r, from += tile.from_row_stride, to += tile.to_row_stride)
    std::fill_n(to, tile.run, *from);
}

template <class T>
void copy_runs(const CopyTile& tile) {
  const T* from = static_cast<const T*>(tile.from);
  T* to = static_cast<T*>(tile.to);
  const size_t bytes = static_cast<size_t>(tile.run) * sizeof(T);
  for (int64_t r = 0; r < tile.rows; ++r, from += tile.from_row_stride, to += tile.to_row_stride)
    std::memcpy(to, from, bytes);
}

// Elements of four bytes are moved as floats, whatever they are: moves keep their bits.
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D d;

// Runs too short for a call of memcpy to pay.
void copy_short_runs(const CopyTile& tile) {
  const float* from = static_cast<const float*>(tile.from);
  float* to = static_cast<float*>(tile.to);
  const size_t lanes = hn::Lanes(d);
  const size_t run = static_cast<size_t>(tile.run);
  for (int64_t r = 0; r < tile.rows; ++r, from += tile.from_row_stride, to += tile.to_row_stride) {
    size_t i = 0;
    for (; i + lanes <= run; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    if (i < run) store_first(d, load_first(d, from + i, run - i), to + i, run - i);
  }
}

#if HWY_TARGET != HWY_SCALAR

// The four floats at p of `kRows` = 4 * blocks rows, those of rows 4 apart in one vector: a
// transposition of 4x4 within blocks then gives columns of all rows.
template <class DV>
HWY_INLINE hn::Vec<DV> load_blocks(DV dv, const float* p, [[maybe_unused]] int64_t stride) {
  constexpr size_t kLanes = hn::MaxLanes(DV());
  if constexpr (kLanes == 4) {
    return hn::LoadU(dv, p);
  } else {
    const hn::Half<DV> half;
    return hn::Combine(dv, load_blocks(half, p + (kLanes / 2) * stride, stride),
                       load_blocks(half, p, stride));
  }
}

// Writes to[k * to_stride + i] = from[i * from_stride + k] for k < 4 and i < lanes.
template <class DV>
HWY_INLINE void transpose_four(DV dv, const float* from, int64_t from_stride, float* to,
                               int64_t to_stride) {
  const hn::Repartition<uint64_t, DV> wide;
  const auto r0 = load_blocks(dv, from, from_stride);
  const auto r1 = load_blocks(dv, from + from_stride, from_stride);
  const auto r2 = load_blocks(dv, from + 2 * from_stride, from_stride);
  const auto r3 = load_blocks(dv, from + 3 * from_stride, from_stride);
  const auto low01 = hn::BitCast(wide, hn::InterleaveLower(dv, r0, r1));
  const auto low23 = hn::BitCast(wide, hn::InterleaveLower(dv, r2, r3));
  const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(dv, r0, r1));
  const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(dv, r2, r3));
  hn::StoreU(hn::BitCast(dv, hn::InterleaveLower(wide, low01, low23)), dv, to);
  hn::StoreU(hn::BitCast(dv, hn::InterleaveUpper(wide, low01, low23)), dv, to + to_stride);
  hn::StoreU(hn::BitCast(dv, hn::InterleaveLower(wide, high01, high23)), dv, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(dv, hn::InterleaveUpper(wide, high01, high23)), dv, to + 3 * to_stride);
}

// Dense rows of the output from dense columns of the input, in patches small enough that a cache
// line of either side is used up while it is there.
void transpose(const CopyTile& tile) {
  constexpr int64_t kPatch = 64;
  const float* from = static_cast<const float*>(tile.from);
  float* to = static_cast<float*>(tile.to);
  const hn::CappedTag<float, 4> four;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole_rows = tile.rows / 4 * 4;
  const int64_t whole_run = tile.run / 4 * 4;
  for (int64_t row = 0; row < whole_rows; row += kPatch) {
    const int64_t row_end = std::min(row + kPatch, whole_rows);
    for (int64_t at = 0; at < whole_run; at += kPatch) {
      const int64_t end = std::min(at + kPatch, whole_run);
      int64_t i = at;
      for (; i + lanes <= end; i += lanes)
        for (int64_t r = row; r < row_end; r += 4)
          transpose_four(d, from + i * tile.from_run_stride + r, tile.from_run_stride,
                         to + r * tile.to_row_stride + i, tile.to_row_stride);
      for (; i < end; i += 4)
        for (int64_t r = row; r < row_end; r += 4)
          transpose_four(four, from + i * tile.from_run_stride + r, tile.from_run_stride,
                         to + r * tile.to_row_stride + i, tile.to_row_stride);
    }
  }
  CopyTile right = tile;
  right.from = from + whole_run * tile.from_run_stride;
  right.to = to + whole_run;
  right.rows = whole_rows;
  right.run = tile.run - whole_run;
  copy_strided<uint32_t>(right);
  CopyTile below = tile;
  below.from = from + whole_rows;
  below.to = to + whole_rows * tile.to_row_stride;
  below.rows = tile.rows - whole_rows;
  copy_strided<uint32_t>(below);
}

// A few planes to pixels of as many channels, without a gap between pixels.
template <int kChannels>
void interleave(const CopyTile& tile) {
  const float* from = static_cast<const float*>(tile.from);
  float* to = static_cast<float*>(tile.to);
  const int64_t plane = tile.from_run_stride;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t r = 0;
  for (; r + lanes <= tile.rows; r += lanes, from += lanes, to += kChannels * lanes) {
    const V a = hn::LoadU(d, from);
    const V b = hn::LoadU(d, from + plane);
    if constexpr (kChannels == 2) hn::StoreInterleaved2(a, b, d, to);
    if constexpr (kChannels == 3)
      hn::StoreInterleaved3(a, b, hn::LoadU(d, from + 2 * plane), d, to);
    if constexpr (kChannels == 4)
      hn::StoreInterleaved4(a, b, hn::LoadU(d, from + 2 * plane), hn::LoadU(d, from + 3 * plane), d,
                            to);
  }
  CopyTile rest = tile;
  rest.from = from;
  rest.to = to;
  rest.rows = tile.rows - r;
  copy_strided<uint32_t>(rest);
}

// The inverse; the tile's rows are channels, and all of them are there.
template <int kChannels>
void deinterleave(const CopyTile& tile) {
  if (tile.rows != kChannels) return copy_strided<uint32_t>(tile);
  const float* from = static_cast<const float*>(tile.from);
  float* to = static_cast<float*>(tile.to);
  const int64_t plane = tile.to_row_stride;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= tile.run; i += lanes, from += kChannels * lanes, to += lanes) {
    V a, b, c, e;
    if constexpr (kChannels == 2) hn::LoadInterleaved2(d, from, a, b);
    if constexpr (kChannels == 3) hn::LoadInterleaved3(d, from, a, b, c);
    if constexpr (kChannels == 4) hn::LoadInterleaved4(d, from, a, b, c, e);
    hn::StoreU(a, d, to);
    hn::StoreU(b, d, to + plane);
    if constexpr (kChannels > 2) hn::StoreU(c, d, to + 2 * plane);
    if constexpr (kChannels > 3) hn::StoreU(e, d, to + 3 * plane);
  }
  CopyTile rest = tile;
  rest.from = from;
  rest.to = to;
  rest.run = tile.run - i;
  copy_strided<uint32_t>(rest);
}

CopyFunction float_transposition(const CopyTile& like) {
  if (like.to_row_stride == like.run) {
    if (like.run == 2) return interleave<2>;
    if (like.run == 3) return interleave<3>;
    if (like.run == 4) return interleave<4>;
  }
  if (like.rows == like.from_run_stride) {
    if (like.rows == 2) return deinterleave<2>;
    if (like.rows == 3) return deinterleave<3>;
    if (like.rows == 4) return deinterleave<4>;
  }
  return transpose;
}

#else

CopyFunction float_transposition(const CopyTile&) {
  return copy_strided<uint32_t>;
}

#endif

template <class T>
CopyFunction function_for(const CopyTile& like) {
  if (like.to_run_stride == 1 && like.from_run_stride == 1) {
    if (sizeof(T) == 4 && like.run <= 256) return copy_short_runs;
    return copy_runs<T>;
  }
  if (like.to_run_stride == 1 && like.from_run_stride == 0) return fill_runs<T>;
  if (sizeof(T) == 4 && like.to_run_stride == 1 && like.from_row_stride == 1)
    return float_transposition(like);
  return copy_strided<T>;
}

struct SixteenBytes {
  uint64_t words[2];
};

CopyFunction select_copy(const CopyTile& like, int element_bytes) {
  switch (element_bytes) {
    case 1:
      return function_for<uint8_t>(like);
    case 2:
      return function_for<uint16_t>(like);
    case 4:
      return function_for<uint32_t>(like);
    case 8:
      return function_for<uint64_t>(like);
    case 16:
      return function_for<SixteenBytes>(like);
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {

HWY_EXPORT(select_copy);
CopyFunction copy_function(const CopyTile& like, int element_bytes) {
  return HWY_DYNAMIC_DISPATCH(select_copy)(like, element_bytes);
}

}  // namespace nimble
#endif
