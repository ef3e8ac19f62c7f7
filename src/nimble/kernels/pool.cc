#include <algorithm>
#include <array>

#include "nimble/base/error.h"
#include "nimble/kernels/divide_row.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/image_rows.h"
#include "nimble/kernels/pool_spans.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/pool.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/lanes-inl.h"
#include "nimble/kernels/window-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

// A few neighbouring pixels of a row whose windows have three columns, one vector. First each input
// column is reduced, then three of them at a time.
struct TileArguments {
  const float* input;  // the first row inside, column 0
  int64_t rows;
  int64_t row_step;
  int64_t column_step;
  int64_t left;             // the tile's first column, in elements; may be outside
  uint32_t columns_inside;  // as bits
  int lanes;
  const float* scales;  // of an average, by pixel
  float* output;
  int64_t output_pixel;
};
// False: there may be a NaN, the result is wrong.
using TileFunction = bool (*)(const TileArguments&);

template <Pool::Kind kKind, int kTile, int kStride, bool kEdge, class Lanes>
bool three_columns_tile(const TileArguments& a) {
  constexpr bool kMax = kKind == Pool::Kind::kMax;
  constexpr int kColumns = (kTile - 1) * kStride + 3;
  static_assert(kColumns <= 32);
  const FloatTag d;
  const Lanes lanes(a.lanes);
  const uint32_t inside = a.columns_inside;
  const int64_t row_step = a.row_step;
  const int64_t column_step = a.column_step;
  // The hardware's maximum loses NaNs. Sums do not. Several, as an addition takes a while.
  constexpr int kSeen = 4;
  FloatVector seen[kSeen];
  for_each_constant<kSeen>([&](auto i) NIMBLE_INLINE_LAMBDA { seen[i] = hn::Zero(FloatTag()); });
  FloatVector columns[kColumns];
  for_each_constant<kColumns>([&](auto i)
                                  NIMBLE_INLINE_LAMBDA { columns[i] = nothing_yet<kKind>(); });
  const float* row = a.input + a.left;
  for (int64_t left = a.rows; left > 0; --left, row += row_step) {
    const float* at = row;
    for_each_constant<kColumns>([&](auto column) NIMBLE_INLINE_LAMBDA {
      const float* from = at;
      at += column_step;
      if constexpr (kEdge)
        if (!(inside & (uint32_t{1} << column))) return;
      const FloatVector x = lanes.load(from);
      if constexpr (kMax) {
        seen[column % kSeen] = hn::Add(seen[column % kSeen], x);
        columns[column] = hn::Max(columns[column], x);
      } else {
        columns[column] = hn::Add(columns[column], x);
      }
    });
  }
  if constexpr (kMax) {
    const FloatVector all = hn::Add(hn::Add(seen[0], seen[1]), hn::Add(seen[2], seen[3]));
    if (!hn::AllFalse(d, hn::IsNaN(all))) return false;
  }
  float* output = a.output;
  const int64_t output_pixel = a.output_pixel;
  for_each_constant<kTile>([&](auto i) NIMBLE_INLINE_LAMBDA {
    const FloatVector left = columns[i * kStride];
    const FloatVector middle = columns[i * kStride + 1];
    const FloatVector right = columns[i * kStride + 2];
    FloatVector result;
    if constexpr (kMax)
      result = hn::Max(hn::Max(left, middle), right);
    else
      result = hn::Mul(hn::Add(hn::Add(left, middle), right), hn::Set(FloatTag(), a.scales[i]));
    lanes.store(result, output);
    output += output_pixel;
  });
  return true;
}

#if HWY_TARGET <= HWY_AVX3
constexpr int kTileSizes[] = {8, 7, 4, 2, 1};
#else
constexpr int kTileSizes[] = {4, 2, 1};
#endif
constexpr int kTileSizeCount = static_cast<int>(std::size(kTileSizes));

struct TileFunctions {
  TileFunction inner;
  TileFunction edge;
  TileFunction partial;
};

template <Pool::Kind kKind, int kStride>
constexpr std::array<TileFunctions, kTileSizeCount> tile_functions() {
  return []<int... kIndices>(std::integer_sequence<int, kIndices...>) {
    return std::array<TileFunctions, kTileSizeCount>{TileFunctions{
        three_columns_tile<kKind, kTileSizes[kIndices], kStride, false, AllLanes>,
        three_columns_tile<kKind, kTileSizes[kIndices], kStride, true, AllLanes>,
        three_columns_tile<kKind, kTileSizes[kIndices], kStride, true, SomeLanes>}...};
  }
  (std::make_integer_sequence<int, kTileSizeCount>());
}
constexpr std::array<TileFunctions, kTileSizeCount> kMaxTiles[] = {
    tile_functions<Pool::Kind::kMax, 1>(), tile_functions<Pool::Kind::kMax, 2>()};
constexpr std::array<TileFunctions, kTileSizeCount> kAverageTiles[] = {
    tile_functions<Pool::Kind::kAverage, 1>(), tile_functions<Pool::Kind::kAverage, 2>()};

struct PlannedTile {
  int64_t pixel;
  int size;
  int64_t left;
  uint32_t columns_inside;
  bool edge;
  TileFunctions functions;  // none: by windows
};

class PoolKernel final : public Kernel {
 public:
  PoolKernel(const Pool& pool, std::span<const TensorDesc> operands)
      : pool_(pool),
        input_(operands[0]),
        output_(operands.back()),
        finish_later_(pool.epilogue != Epilogue()) {
    if (pool.epilogue.add) addend_ = ImageRows(operands[1]);
    for (int64_t y = 0; y < output_.height(); ++y)
      rows_.push_back(pool_span(pool, 0, input_.height(), y));
    for (int64_t x = 0; x < output_.width(); ++x)
      columns_.push_back(pool_span(pool, 1, input_.width(), x));
    plan_tiles();
    plan_scales();
  }

  std::string name() const override {
    return message("pool.", three_columns_ ? "columns" : "windows", " of ", kLanes, " channels");
  }
  Work work() const override {
    if (output_.numel() == 0) return {0, 1, 0, 0};
    return {output_.batch() * output_.height(), 1, output_.channels(), kLanes};
  }

  void run(const KernelArguments& arguments) const override {
    if (pool_.kind == Pool::Kind::kMax)
      run_rows<Pool::Kind::kMax>(arguments);
    else
      run_rows<Pool::Kind::kAverage>(arguments);
  }

 private:
  static constexpr int kLargestTile = kTileSizes[0];

  void plan_tiles() {
    const int64_t stride = pool_.stride[1];
    three_columns_ = pool_.kernel[1] == 3 && pool_.dilation[1] == 1 && (stride == 1 || stride == 2);
    int64_t pixel = 0;
    if (!three_columns_) {
      for (; pixel < output_.width(); pixel += kLargestTile) {
        const int64_t size = std::min<int64_t>(kLargestTile, output_.width() - pixel);
        tiles_.push_back({pixel, static_cast<int>(size), 0, 0, true, {}});
      }
      return;
    }
    const auto& sets = pool_.kind == Pool::Kind::kMax ? kMaxTiles : kAverageTiles;
    for (int index : divide_row(output_.width(), kTileSizes)) {
      const int size = kTileSizes[index];
      const int64_t left = pixel * stride - pool_.padding[1];
      uint32_t inside = 0;
      for (int64_t column = 0; column < (size - 1) * stride + 3; ++column)
        if (left + column >= 0 && left + column < input_.width()) inside |= uint32_t{1} << column;
      const int columns = (size - 1) * static_cast<int>(stride) + 3;
      tiles_.push_back({pixel, size, left * input_.pixel(), inside,
                        inside + 1 != uint32_t{1} << columns,
                        sets[static_cast<size_t>(stride - 1)][index]});
      pixel += size;
    }
  }

  // Reciprocals of the divisors, for each different kind of row: the first rows, the last ones and
  // those between.
  void plan_scales() {
    if (pool_.kind == Pool::Kind::kMax) return;
    std::vector<std::pair<int64_t, int64_t>> seen;
    for (const PoolSpan& row : rows_) {
      const std::pair kind(row.taps, row.counted);
      const size_t found =
          static_cast<size_t>(std::find(seen.begin(), seen.end(), kind) - seen.begin());
      row_scales_.push_back(static_cast<int64_t>(found) * output_.width());
      if (found < seen.size()) continue;
      seen.push_back(kind);
      for (const PoolSpan& column : columns_) scales_.push_back(pool_scale(pool_, row, column));
    }
  }

  template <Pool::Kind kKind>
  void run_rows(const KernelArguments& arguments) const {
    const Part& part = arguments.part;
    TileArguments tile;
    tile.row_step = pool_.dilation[0] * input_.row();
    tile.column_step = input_.pixel();
    tile.output_pixel = finish_later_ ? kLanes : output_.pixel();
    for (int64_t row = part.row_begin; row < part.row_end; ++row) {
      const int64_t image = row / output_.height();
      const int64_t y = row % output_.height();
      const PoolSpan& span = rows_[static_cast<size_t>(y)];
      tile.rows = span.taps;
      const float* input =
          static_cast<const float*>(arguments.operands[0]) + input_.offset(image, span.first);
      float* output = static_cast<float*>(arguments.operands[pool_.epilogue.add ? 2 : 1]) +
                      output_.offset(image, y);
      const float* addend = nullptr;
      if (pool_.epilogue.add)
        addend = static_cast<const float*>(arguments.operands[1]) + addend_.offset(image, y);
      for (const PlannedTile& planned : tiles_) {
        tile.left = planned.left;
        tile.columns_inside = planned.columns_inside;
        if constexpr (kKind == Pool::Kind::kAverage)
          tile.scales = scales_.data() + row_scales_[static_cast<size_t>(y)] + planned.pixel;
        for (int64_t c = part.column_begin; c < part.column_end; c += kLanes) {
          tile.input = input + c;
          tile.lanes = static_cast<int>(std::min<int64_t>(part.column_end - c, kLanes));
          run_tile<kKind>(planned, tile, output + planned.pixel * output_.pixel() + c,
                          addend ? addend + planned.pixel * addend_.pixel() + c : nullptr);
        }
      }
    }
  }

  template <Pool::Kind kKind>
  HWY_INLINE void run_tile(const PlannedTile& planned, TileArguments& tile, float* output,
                           const float* addend) const {
    // What a partial vector leaves undefined in here goes through the epilogue and no further.
    HWY_ALIGN float results[kLargestTile * kLanes];
    if (finish_later_ && tile.lanes < kLanes)
      std::fill(results, results + kLargestTile * kLanes, 0.0f);
    tile.output = finish_later_ ? results : output;
    const TileFunction function = tile.lanes < kLanes ? planned.functions.partial
                                  : planned.edge      ? planned.functions.edge
                                                      : planned.functions.inner;
    if (function == nullptr || !function(tile)) {
      if (tile.lanes < kLanes)
        run_windows<kKind, SomeLanes>(planned, tile);
      else
        run_windows<kKind, AllLanes>(planned, tile);
    }
    if (finish_later_)
      finish_tile(pool_.epilogue, results, planned.size, tile.lanes, addend, addend_.pixel(),
                  output, output_.pixel());
  }

  template <Pool::Kind kKind, class Lanes>
  void run_windows(const PlannedTile& planned, const TileArguments& tile) const {
    const Lanes lanes(tile.lanes);
    for (int i = 0; i < planned.size; ++i) {
      const PoolSpan& span = columns_[planned.pixel + i];
      const Window window{tile.input + span.first * input_.pixel(), tile.rows, span.taps,
                          tile.row_step, pool_.dilation[1] * input_.pixel()};
      FloatVector result[1];
      reduce_window<kKind>(window, lanes, result);
      if constexpr (kKind == Pool::Kind::kAverage)
        result[0] = hn::Mul(result[0], hn::Set(FloatTag(), tile.scales[i]));
      lanes.store(result[0], tile.output + i * tile.output_pixel);
    }
  }

  Pool pool_;
  ImageRows input_, output_, addend_;
  bool finish_later_;
  bool three_columns_ = false;
  std::vector<PoolSpan> rows_, columns_;
  std::vector<PlannedTile> tiles_;
  std::vector<float> scales_;
  std::vector<int64_t> row_scales_;  // by output row, where in scales_
};

KernelPtr make_pool(const Pool& pool, std::span<const TensorDesc> operands) {
  return std::make_shared<PoolKernel>(pool, operands);
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {
HWY_EXPORT(make_pool);

std::vector<KernelPtr> pool_candidates(const Pool& pool, std::span<const TensorDesc> operands) {
  for (const TensorDesc& desc : operands)
    if (desc.sizes.size() != 4 || !ImageRows(desc).channels_last()) return {};
  return {HWY_DYNAMIC_DISPATCH(make_pool)(pool, operands)};
}

}  // namespace nimble
#endif
