#include "nimble/kernels/outer_tile.h"

#include <algorithm>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/outer_tile.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/gemm_tile-inl.h"
#include "nimble/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

// The last vector of a panel: all of its lanes, some of them, or some of the lower half.
struct WholeVector {
  using D = FullTag;
  explicit HWY_INLINE WholeVector(size_t /*count*/) {}
  HWY_INLINE hn::Vec<D> load(const float* from) const { return hn::LoadU(D(), from); }
  HWY_INLINE void store(hn::Vec<D> value, float* to) const { hn::StoreU(value, D(), to); }
};

template <class DLast>
struct FirstLanes {
  using D = DLast;
  explicit HWY_INLINE FirstLanes(size_t count) : count_(count) {
#if HWY_TARGET <= HWY_AVX2
    mask_ = hn::FirstN(D(), count);
#if HWY_TARGET <= HWY_AVX3
    asm("" : "+k"(mask_.raw));  // or it is made again for every use
#endif
#endif
  }
  HWY_INLINE hn::Vec<D> load(const float* from) const {
#if HWY_TARGET <= HWY_AVX2
    return hn::MaskedLoad(mask_, D(), from);
#else
    return load_first(D(), from, count_);
#endif
  }
  HWY_INLINE void store(hn::Vec<D> value, float* to) const {
    store_first(D(), value, to, count_);
  }

 private:
  size_t count_;
#if HWY_TARGET <= HWY_AVX2
  hn::Mask<D> mask_;
#endif
};

template <size_t kRows, size_t kVectors, class Last>
void outer_tile(const OuterTile& tile) {
  using DLast = typename Last::D;
  constexpr size_t kWhole = kVectors - 1;
  const FullTag d;
  const size_t lanes = hn::Lanes(d);
  const Last end(static_cast<size_t>(tile.columns) - kWhole * lanes);
  hn::Vec<FullTag> sum[kWhole > 0 ? kRows * kWhole : 1];
  hn::Vec<DLast> last[kRows];
  if (tile.goes_on) {
    NIMBLE_UNROLL(kRows, m) {
      const float* from = tile.c + static_cast<int64_t>(m) * tile.c_row;
      NIMBLE_UNROLL(kWhole, v) {
        sum[m * kWhole + v] = hn::LoadU(FullTag(), from + v * hn::Lanes(FullTag()));
      });
      last[m] = end.load(from + kWhole * hn::Lanes(FullTag()));
    });
  } else {
    NIMBLE_UNROLL(kRows * kWhole, i) {
      sum[i] = hn::Zero(FullTag());
    });
    NIMBLE_UNROLL(kRows, m) {
      last[m] = hn::Zero(DLast());
    });
  }
  const int64_t a_step = tile.a_step;
  const int64_t b_step = tile.b_step;
  for (const PixelRun* run = tile.runs; run < tile.runs + tile.run_count; ++run) {
    const float* a = tile.a + run->a;
    const float* b = tile.b + run->b;
    for (int64_t k = run->count; k > 0; --k) {
      hn::Vec<FullTag> row[kVectors];
      NIMBLE_UNROLL(kWhole, v) {
        row[v] = hn::LoadU(FullTag(), b + v * hn::Lanes(FullTag()));
      });
      const hn::Vec<DLast> row_end = end.load(b + kWhole * lanes);
      NIMBLE_UNROLL(kRows, m) {
        const hn::Vec<FullTag> value = hn::Set(FullTag(), a[m]);
        NIMBLE_UNROLL(kWhole, v) {
          sum[m * kWhole + v] = hn::MulAdd(value, row[v], sum[m * kWhole + v]);
        });
        last[m] = hn::MulAdd(as_last<DLast>(value), row_end, last[m]);
      });
      a += a_step;
      b += b_step;
    }
  }
  NIMBLE_UNROLL(kRows, m) {
    float* to = tile.c + static_cast<int64_t>(m) * tile.c_row;
    NIMBLE_UNROLL(kWhole, v) {
      hn::StoreU(sum[m * kWhole + v], FullTag(), to + v * hn::Lanes(FullTag()));
    });
    end.store(last[m], to + kWhole * hn::Lanes(FullTag()));
  });
}

void sum_pixels(const float* from, int64_t step, int64_t count, int64_t channels, float* to) {
  const FloatTag d;
  for (int64_t c = 0; c < channels; c += kLanes) {
    const SomeLanes lanes(static_cast<int>(std::min<int64_t>(channels - c, kLanes)));
    FloatVector sum[2] = {hn::Zero(d), hn::Zero(d)};
    int64_t p = 0;
    for (; p + 2 <= count; p += 2) {
      sum[0] = hn::Add(sum[0], lanes.load(from + p * step + c));
      sum[1] = hn::Add(sum[1], lanes.load(from + (p + 1) * step + c));
    }
    if (p < count) sum[0] = hn::Add(sum[0], lanes.load(from + p * step + c));
    lanes.store(hn::Add(lanes.load(to + c), hn::Add(sum[0], sum[1])), to + c);
  }
}

template <size_t kVectors, size_t... kRows>
void list_tiles(OuterTiles& table, std::index_sequence<kRows...>) {
  ((table.tiles[OuterTiles::kWhole][kVectors][kRows + 1] =
        outer_tile<kRows + 1, kVectors, WholeVector>),
   ...);
  ((table.tiles[OuterTiles::kPartial][kVectors][kRows + 1] =
        outer_tile<kRows + 1, kVectors, FirstLanes<FullTag>>),
   ...);
  ((table.tiles[OuterTiles::kHalf][kVectors][kRows + 1] =
        outer_tile<kRows + 1, kVectors, FirstLanes<HalfTag>>),
   ...);
  table.max_rows[kVectors] = sizeof...(kRows);
}

template <size_t... kVectors>
OuterTiles make_tiles(std::index_sequence<kVectors...>) {
  OuterTiles table;
  table.lanes = static_cast<int64_t>(hn::Lanes(FullTag()));
  table.half_lanes = static_cast<int64_t>(hn::Lanes(HalfTag()));
  table.max_vectors = sizeof...(kVectors);
  (list_tiles<kVectors + 1>(table, std::make_index_sequence<max_tile_rows(kVectors + 1)>()), ...);
  table.sum_pixels = sum_pixels;
  return table;
}

}  // namespace

const OuterTiles* target_outer_tiles() {
  static const OuterTiles table = make_tiles(std::make_index_sequence<3>());
  return &table;
}

}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {

HWY_EXPORT(target_outer_tiles);

const OuterTiles& outer_tiles() {
  return *HWY_DYNAMIC_DISPATCH(target_outer_tiles)();
}

void OuterTiles::run(OuterTile tile, int64_t rows) const {
  if (rows <= 0) return;
  const int64_t vectors = vectors_of(tile.columns);
  const int64_t rest = tile.columns - (vectors - 1) * lanes;
  const Variant variant = rest == lanes                              ? kWhole
                          : rest <= half_lanes && half_lanes < lanes ? kHalf
                                                                     : kPartial;
  const int64_t count = (rows + max_rows[vectors] - 1) / max_rows[vectors];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t height = rows / count + (i < rows % count ? 1 : 0);
    tiles[variant][vectors][height](tile);
    tile.a += height;
    tile.c += height * tile.c_row;
  }
}

}  // namespace nimble
#endif
