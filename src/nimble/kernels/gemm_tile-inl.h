// Per-target: the register tile. See gemm_tile.h.
#if defined(NIMBLE_KERNELS_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NIMBLE_KERNELS_GEMM_TILE_INL_H_
#undef NIMBLE_KERNELS_GEMM_TILE_INL_H_
#else
#define NIMBLE_KERNELS_GEMM_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <utility>

#include "nimble/kernels/epilogue-inl.h"
#include "nimble/kernels/gemm_tile.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Accumulators, a panel row and one broadcast have to fit in the registers.
constexpr int max_tile_rows(int vectors) {
  if (HWY_TARGET <= HWY_AVX3) return vectors == 1 ? 28 : vectors == 2 ? 14 : vectors == 3 ? 9 : 6;
  return vectors == 1 ? 12 : vectors == 2 ? 6 : vectors == 3 ? 4 : 0;
}
inline constexpr int kTileVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 3;

template <class F, size_t... kI>
HWY_INLINE void unrolled(std::index_sequence<kI...>, const F& f) {
  (f(std::integral_constant<size_t, kI>()), ...);
}
#define NIMBLE_UNROLL(n, i) unrolled(std::make_index_sequence<(n)>(), [&](auto i) HWY_ATTR __attribute__((always_inline))

template <size_t kRows, size_t kVectors>
struct RegisterTile {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  // Rows of `a` per pointer: [p], [p + stride] and [p + 2 * stride] need no register of their own.
  static constexpr size_t kRowsPerPointer = 3;
  static constexpr size_t kPointers = (kRows + kRowsPerPointer - 1) / kRowsPerPointer;

  V sum[kRows * kVectors];

  HWY_INLINE void step(const char* const (&a)[kPointers], size_t stride, size_t k, const float* b) {
    const D d;
    V panel[kVectors];
    NIMBLE_UNROLL(kVectors, v) {
      panel[v] = hn::Load(d, b + v * hn::Lanes(D()));
    });
    NIMBLE_UNROLL(kRows, m) {
      const char* row = a[m / kRowsPerPointer] + (m % kRowsPerPointer) * stride;
      const V value = hn::Set(d, reinterpret_cast<const float*>(row)[k]);
      NIMBLE_UNROLL(kVectors, v) {
        sum[m * kVectors + v] = hn::MulAdd(value, panel[v], sum[m * kVectors + v]);
      });
    });
  }
};

template <size_t kRows, size_t kVectors>
void gemm_tile(const GemmTile& tile) {
  using Tile = RegisterTile<kRows, kVectors>;
  using V = typename Tile::V;
  const typename Tile::D d;
  constexpr size_t kUnroll = 4;
  const size_t lanes = hn::Lanes(d);

  Tile t;
  if (tile.bias != nullptr) {
    NIMBLE_UNROLL(kRows * kVectors, i) {
      t.sum[i] = hn::Load(d, tile.bias + (i % kVectors) * hn::Lanes(hn::ScalableTag<float>()));
    });
  } else {
    NIMBLE_UNROLL(kRows * kVectors, i) {
      t.sum[i] = hn::Zero(hn::ScalableTag<float>());
    });
  }

  size_t stride = static_cast<size_t>(tile.a_row) * sizeof(float);
  const float* b = tile.b;
  for (int64_t r = 0; r < tile.run_count; ++r) {
    const char* a[Tile::kPointers];
    const char* first = reinterpret_cast<const char*>(tile.a + tile.runs[r]);
    NIMBLE_UNROLL(Tile::kPointers, p) {
      a[p] = first + p * Tile::kRowsPerPointer * stride;
    });
    int64_t k = tile.run_length;
    for (; k >= static_cast<int64_t>(kUnroll); k -= kUnroll) {
      // Opaque, or the compiler makes an induction variable of every row and runs out of registers.
      NIMBLE_UNROLL(Tile::kPointers, p) {
        asm("" : "+r"(a[p]));
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
        asm("" : "+r"(a[p]));
      });
      asm("" : "+r"(stride));
      t.step(a, stride, 0, b);
      NIMBLE_UNROLL(Tile::kPointers, p) {
        a[p] += sizeof(float);
      });
      b += kVectors * lanes;
    }
  }

  const Epilogue& epilogue = *tile.epilogue;
  ClampBounds first, last;
  const bool clamps = is_clamp(epilogue.first, first) && is_clamp(epilogue.last, last);
  if (clamps && epilogue.first.kind != ActivationKind::kNone) {
    const V low = hn::Set(d, first.low), high = hn::Set(d, first.high);
    NIMBLE_UNROLL(kRows * kVectors, i) {
      t.sum[i] = at_most(at_least(t.sum[i], low), high);
    });
  }
  const size_t tail = static_cast<size_t>(tile.columns) - (kVectors - 1) * lanes;
  if (clamps && tile.addend != nullptr) {
    const float* addend = tile.addend;
    NIMBLE_UNROLL(kRows, m) {
      const hn::ScalableTag<float> dd;
      NIMBLE_UNROLL(kVectors, v) {
        V& sum = t.sum[m * kVectors + v];
        const float* from = addend + v * hn::Lanes(dd);
        if (v + 1 < kVectors)
          sum = hn::Add(sum, hn::LoadU(dd, from));
        else
          sum = hn::Add(sum, load_first(dd, from, tail));
      });
      addend += tile.addend_row;
    });
  }
  if (clamps && epilogue.last.kind != ActivationKind::kNone) {
    const V low = hn::Set(d, last.low), high = hn::Set(d, last.high);
    NIMBLE_UNROLL(kRows * kVectors, i) {
      t.sum[i] = at_most(at_least(t.sum[i], low), high);
    });
  }
  float* c = tile.c;
  NIMBLE_UNROLL(kRows, m) {
    const hn::ScalableTag<float> dd;
    NIMBLE_UNROLL(kVectors, v) {
      float* to = c + v * hn::Lanes(dd);
      if (v + 1 < kVectors)
        hn::StoreU(t.sum[m * kVectors + v], dd, to);
      else
        store_first(dd, t.sum[m * kVectors + v], to, tail);
    });
    c += tile.c_row;
  });
  if (!clamps) {
    for (size_t m = 0; m < kRows; ++m)
      finish_row(d, epilogue, tile.addend ? tile.addend + m * tile.addend_row : nullptr,
                 tile.c + m * tile.c_row, static_cast<size_t>(tile.columns));
  }
}

}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
