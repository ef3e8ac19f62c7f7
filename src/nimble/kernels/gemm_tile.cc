#include "nimble/kernels/gemm_tile.h"

#include <algorithm>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/gemm_tile.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {

template <size_t kVectors, size_t... kRows>
void list_tiles(GemmTiles& table, std::index_sequence<kRows...>) {
  ((table.tiles[kVectors][kRows + 1] = gemm_tile<kRows + 1, kVectors, FullTag>), ...);
  ((table.half_tiles[kVectors][kRows + 1] = gemm_tile<kRows + 1, kVectors, HalfTag>), ...);
  table.vectors[kVectors] = gemv_tile<kVectors>;
  table.max_rows[kVectors] = sizeof...(kRows);
}

template <size_t... kVectors>
GemmTiles make_tiles(std::index_sequence<kVectors...>) {
  GemmTiles table;
  table.lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  table.half_lanes = static_cast<int64_t>(hn::Lanes(HalfTag()));
  table.max_vectors = sizeof...(kVectors);
  (list_tiles<kVectors + 1>(table, std::make_index_sequence<max_tile_rows(kVectors + 1)>()), ...);
  table.transpose = transpose_columns;
  table.activate = activate_floats;
  return table;
}

const GemmTiles* target_tiles() {
  static const GemmTiles table = make_tiles(std::make_index_sequence<kTileVectors>());
  return &table;
}

}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {

HWY_EXPORT(target_tiles);

const GemmTiles& gemm_tiles() {
  return *HWY_DYNAMIC_DISPATCH(target_tiles)();
}

void GemmTiles::run(GemmTile& whole, int vectors, int64_t rows) const {
  if (rows <= 0) return;
  GemmTile tile = whole;
  const int64_t count = (rows + max_rows[vectors] - 1) / max_rows[vectors];
  const int64_t small = rows / count;
  const int64_t larger = rows % count;  // tiles with one row more, first
  const auto& of_height =
      tile.columns <= (vectors - 1) * lanes + half_lanes ? half_tiles[vectors] : tiles[vectors];
  const int64_t reach = tile.run_count * (tile.run_length / 4) * 16 * vectors;  // of one tile
  for (int64_t i = 0; i < count; ++i) {
    const int64_t height = small + (i < larger ? 1 : 0);
    if (tile.ahead != nullptr) {
      const int64_t left = (whole.ahead_end - tile.ahead + 15) / 16;
      const int64_t share = (left + count - i - 1) / (count - i) * 16;
      tile.ahead_end = tile.ahead + std::min(share, reach);
    }
    of_height[height](tile);
    tile.a += height * tile.a_row;
    tile.c += height * tile.c_row;
    if (tile.addend != nullptr) tile.addend += height * tile.addend_row;
    if (tile.ahead != nullptr)
      tile.ahead = tile.ahead_end < whole.ahead_end ? tile.ahead_end : nullptr;
  }
  whole.ahead = tile.ahead;
}

}  // namespace nimble
#endif
