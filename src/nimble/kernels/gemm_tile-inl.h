// Per-target: the register tile. See gemm_tile.h.
#if defined(NIMBLE_KERNELS_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIMBLE_KERNELS_GEMM_TILE_INL_H_
#undef NIMBLE_KERNELS_GEMM_TILE_INL_H_
#else
#define NIMBLE_KERNELS_GEMM_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>
#include <utility>

#include "nimble/kernels/epilogue-inl.h"
#include "nimble/kernels/gemm_tile.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Accumulators, a panel row and one broadcast have to fit in the registers. Under a sanitizer every
// access is a call, and compiling tall tiles would take many minutes.
constexpr int max_tile_rows(int vectors) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return vectors <= 2 ? 2 : 1;
#endif
  if (HWY_TARGET <= HWY_AVX3) return vectors == 1 ? 28 : vectors == 2 ? 14 : vectors == 3 ? 9 : 6;
  return vectors == 1 ? 12 : vectors == 2 ? 6 : vectors == 3 ? 4 : 0;
}
inline constexpr int kTileVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 3;

template <class F, size_t... kI>
HWY_INLINE void unrolled(std::index_sequence<kI...>, const F& f) {
  (f(std::integral_constant<size_t, kI>()), ...);
}
#define NIMBLE_IN_REGISTERS HWY_ATTR __attribute__((always_inline))
#define NIMBLE_UNROLL(n, i) unrolled(std::make_index_sequence<(n)>(), [&](auto i) NIMBLE_IN_REGISTERS

// Into the second-level cache.
HWY_INLINE void prefetch_far(const void* p) {
  __builtin_prefetch(p, 0, 2);
}

// Columns are vectors, the last of which may be a half one: on some processors that takes half the
// time, and few channels are multiples of 16.
using FullTag = hn::ScalableTag<float>;
#if HWY_TARGET <= HWY_AVX3
using HalfTag = hn::Half<FullTag>;
#else
using HalfTag = FullTag;
#endif

template <class DLast>
HWY_INLINE hn::Vec<DLast> as_last(hn::Vec<FullTag> v) {
  if constexpr (std::is_same_v<DLast, FullTag>)
    return v;
  else
    return hn::LowerHalf(DLast(), v);
}

template <size_t kRows, size_t kVectors, class DLast>
struct RegisterTile {
  using D = FullTag;
  using V = hn::Vec<D>;
  static constexpr size_t kWhole = kVectors - 1;  // vectors before the last one
  // Rows of `a` per pointer: [p], [p + stride] and [p + 2 * stride] need no register of their own.
  static constexpr size_t kRowsPerPointer = 3;
  static constexpr size_t kPointers = (kRows + kRowsPerPointer - 1) / kRowsPerPointer;

  V sum[kWhole > 0 ? kRows* kWhole : 1];
  hn::Vec<DLast> last[kRows];

  HWY_INLINE void step(const char* const (&a)[kPointers], size_t stride, size_t k, const float* b) {
    const D d;
    V panel[kVectors];
    NIMBLE_UNROLL(kWhole, v) {
      panel[v] = hn::Load(D(), b + v * hn::Lanes(D()));
    });
    const hn::Vec<DLast> end = hn::Load(DLast(), b + kWhole * hn::Lanes(d));
    NIMBLE_UNROLL(kRows, m) {
      const char* row = a[m / kRowsPerPointer] + (m % kRowsPerPointer) * stride;
      const V value = hn::Set(d, reinterpret_cast<const float*>(row)[k]);
      NIMBLE_UNROLL(kWhole, v) {
        sum[m * kWhole + v] = hn::MulAdd(value, panel[v], sum[m * kWhole + v]);
      });
      last[m] = hn::MulAdd(as_last<DLast>(value), end, last[m]);
    });
  }

  HWY_INLINE void clamp(const ClampBounds& bounds) {
    const D d;
    const V low = hn::Set(d, bounds.low), high = hn::Set(d, bounds.high);
    NIMBLE_UNROLL(kRows * kWhole, i) {
      sum[i] = at_most(at_least(sum[i], low), high);
    });
    NIMBLE_UNROLL(kRows, m) {
      last[m] = at_most(at_least(last[m], as_last<DLast>(low)), as_last<DLast>(high));
    });
  }

  // Calls f(sum, tag, address) for each whole vector, g(...) for the last one of each row.
  template <class F, class G>
  HWY_INLINE void with_memory(auto* row, int64_t row_step, const F& f, const G& g) {
    NIMBLE_UNROLL(kRows, m) {
      NIMBLE_UNROLL(kWhole, v) {
        f(sum[m * kWhole + v], row + v * hn::Lanes(D()));
      });
      g(last[m], row + kWhole * hn::Lanes(D()));
      row += row_step;
    });
  }
};

// From sums to results in memory.
template <size_t kRows, size_t kVectors, class DLast>
HWY_INLINE void finish_tile(const GemmTile& tile, RegisterTile<kRows, kVectors, DLast>& t) {
  const FullTag d;
  using V = hn::Vec<FullTag>;
  using VLast = hn::Vec<DLast>;
  const Epilogue& epilogue = *tile.epilogue;
  ClampBounds first, last;
  const bool clamps = is_clamp(epilogue.first, first) && is_clamp(epilogue.last, last);
  if (clamps && epilogue.first.kind != ActivationKind::kNone) t.clamp(first);
  const size_t tail = static_cast<size_t>(tile.columns) - (kVectors - 1) * hn::Lanes(d);
  if (clamps && tile.addend != nullptr)
    t.with_memory(
        tile.addend, tile.addend_row,
        [](V& x, const float* from)
            NIMBLE_IN_REGISTERS { x = hn::Add(x, hn::LoadU(FullTag(), from)); },
        [tail](VLast& x, const float* from)
            NIMBLE_IN_REGISTERS { x = hn::Add(x, load_first(DLast(), from, tail)); });
  if (clamps && epilogue.last.kind != ActivationKind::kNone) t.clamp(last);
  t.with_memory(
      tile.c, tile.c_row, [](V& x, float* to) NIMBLE_IN_REGISTERS { hn::StoreU(x, FullTag(), to); },
      [tail](VLast& x, float* to) NIMBLE_IN_REGISTERS { store_first(DLast(), x, to, tail); });
  if (!clamps)
    finish_rows(d, epilogue, tile.addend, tile.addend_row, tile.c,
                static_cast<size_t>(tile.columns), kRows, tile.c_row);
}

template <size_t kRows, size_t kVectors, class DLast>
void gemm_tile(const GemmTile& tile) {
  using Tile = RegisterTile<kRows, kVectors, DLast>;
  using V = hn::Vec<FullTag>;
  using VLast = hn::Vec<DLast>;
  const FullTag d;
  constexpr size_t kUnroll = 4;
  const size_t lanes = hn::Lanes(d);

  Tile t;
  if (tile.goes_on) {
    const size_t tail = static_cast<size_t>(tile.columns) - (kVectors - 1) * lanes;
    t.with_memory(
        static_cast<const float*>(tile.c), tile.c_row,
        [](V& x, const float* from) NIMBLE_IN_REGISTERS { x = hn::LoadU(FullTag(), from); },
        [tail](VLast& x, const float* from)
            NIMBLE_IN_REGISTERS { x = load_first(DLast(), from, tail); });
  } else if (tile.bias != nullptr) {
    t.with_memory(
        tile.bias, 0,
        [](V& x, const float* from) NIMBLE_IN_REGISTERS { x = hn::Load(FullTag(), from); },
        [](VLast& x, const float* from) NIMBLE_IN_REGISTERS { x = hn::Load(DLast(), from); });
  } else {
    NIMBLE_UNROLL(kRows * (kVectors - 1), i) {
      t.sum[i] = hn::Zero(FullTag());
    });
    NIMBLE_UNROLL(kRows, m) {
      t.last[m] = hn::Zero(DLast());
    });
  }

  size_t stride = static_cast<size_t>(tile.a_row) * sizeof(float);
  const float* b = tile.b;
  const char* ahead = reinterpret_cast<const char*>(tile.ahead ? tile.ahead : tile.b);
  const char* ahead_end = reinterpret_cast<const char*>(tile.ahead ? tile.ahead_end : tile.b);
  for (int64_t r = 0; r < tile.run_count; ++r) {
    const char* a[Tile::kPointers];
    const char* first = reinterpret_cast<const char*>(tile.a + tile.runs[r]);
    NIMBLE_UNROLL(Tile::kPointers, p) {
      a[p] = first + p * Tile::kRowsPerPointer * stride;
    });
    int64_t k = tile.run_length;
    for (; k >= static_cast<int64_t>(kUnroll); k -= kUnroll) {
      if constexpr (kVectors > 1) {
        NIMBLE_UNROLL(kVectors, v) {
          prefetch_far(ahead + v * 64);
        });
        ahead += ahead < ahead_end ? kVectors * 64 : 0;
      }
      // Opaque, or the compiler makes an induction variable of every row and runs out of registers.
      NIMBLE_UNROLL(Tile::kPointers, p) {
        const char*& pointer = a[p];
        asm("" : "+r"(pointer));
      });
      asm("" : "+r"(stride));
      NIMBLE_UNROLL(kUnroll, u) {
        t.step(a, stride, u, b + u * kVectors * hn::Lanes(hn::ScalableTag<float>()));
      });
      NIMBLE_UNROLL(Tile::kPointers, p) {
        a[p] += kUnroll * sizeof(float);
      });
      b += kUnroll * kVectors * lanes;
    }
    for (; k > 0; --k) {
      NIMBLE_UNROLL(Tile::kPointers, p) {
        const char*& pointer = a[p];
        asm("" : "+r"(pointer));
      });
      asm("" : "+r"(stride));
      t.step(a, stride, 0, b);
      NIMBLE_UNROLL(Tile::kPointers, p) {
        a[p] += sizeof(float);
      });
      b += kVectors * lanes;
    }
  }
  finish_tile(tile, t);
}

// One row, the sum over k cut into several chains: with few accumulators each waits for itself.
template <size_t kVectors>
void gemv_tile(const GemmTile& tile) {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  const D d;
  constexpr size_t kChains = kVectors == 1 ? 8 : kVectors == 2 ? 4 : kVectors == 3 ? 3 : 2;
  const size_t lanes = hn::Lanes(d);
  V part[kChains * kVectors];
  NIMBLE_UNROLL(kChains * kVectors, i) {
    part[i] = hn::Zero(D());
  });
  const float* b = tile.b;
  for (int64_t r = 0; r < tile.run_count; ++r) {
    const float* a = tile.a + tile.runs[r];
    int64_t k = tile.run_length;
    for (; k >= static_cast<int64_t>(kChains); k -= kChains) {
      NIMBLE_UNROLL(kChains, u) {
        const V value = hn::Set(D(), a[u]);
        NIMBLE_UNROLL(kVectors, v) {
          part[u * kVectors + v] =
              hn::MulAdd(value, hn::Load(D(), b + (u * kVectors + v) * hn::Lanes(D())),
                         part[u * kVectors + v]);
        });
      });
      a += kChains;
      b += kChains * kVectors * lanes;
    }
    for (; k > 0; --k, ++a, b += kVectors * lanes) {
      const V value = hn::Set(d, a[0]);
      NIMBLE_UNROLL(kVectors, v) {
        part[v] = hn::MulAdd(value, hn::Load(D(), b + v * hn::Lanes(D())), part[v]);
      });
    }
  }
  RegisterTile<1, kVectors, D> t;
  NIMBLE_UNROLL(kVectors, v) {
    V sum = part[v];
    NIMBLE_UNROLL(kChains - 1, u) {
      sum = hn::Add(sum, part[(u + 1) * kVectors + v]);
    });
    if (tile.bias != nullptr) sum = hn::Add(sum, hn::Load(D(), tile.bias + v * hn::Lanes(D())));
    if constexpr (v + 1 < kVectors)
      t.sum[v] = sum;
    else
      t.last[0] = sum;
  });
  finish_tile(tile, t);
}

// to[k * to_row + c] = scale * from[c * from_column + k] for c < columns, k < depth.
inline void transpose_columns(const float* from, int64_t from_column, int64_t columns,
                              int64_t depth, float scale, float* to, int64_t to_row) {
  int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  const auto factor = hn::Set(d, scale);
  for (; c + 4 <= columns; c += 4) {
    const float* column = from + c * from_column;
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
      const auto v0 = hn::Mul(hn::LoadU(d, column + k), factor);
      const auto v1 = hn::Mul(hn::LoadU(d, column + from_column + k), factor);
      const auto v2 = hn::Mul(hn::LoadU(d, column + 2 * from_column + k), factor);
      const auto v3 = hn::Mul(hn::LoadU(d, column + 3 * from_column + k), factor);
      const auto low02 = hn::InterleaveLower(d, v0, v2);
      const auto low13 = hn::InterleaveLower(d, v1, v3);
      const auto high02 = hn::InterleaveUpper(d, v0, v2);
      const auto high13 = hn::InterleaveUpper(d, v1, v3);
      float* row = to + k * to_row + c;
      hn::StoreU(hn::InterleaveLower(d, low02, low13), d, row);
      hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, row + to_row);
      hn::StoreU(hn::InterleaveLower(d, high02, high13), d, row + 2 * to_row);
      hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, row + 3 * to_row);
    }
    for (; k < depth; ++k)
      for (int64_t i = 0; i < 4; ++i) to[k * to_row + c + i] = scale * column[i * from_column + k];
  }
#endif
  for (; c < columns; ++c)
    for (int64_t k = 0; k < depth; ++k) to[k * to_row + c] = scale * from[c * from_column + k];
}

inline void activate_floats(const Activation& activation, float* row, int64_t count) {
  activate_row(hn::ScalableTag<float>(), activation, row, static_cast<size_t>(count));
}

}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
