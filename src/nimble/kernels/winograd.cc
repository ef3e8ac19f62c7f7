#include "nimble/kernels/winograd.h"

#include <algorithm>

#include "nimble/base/error.h"
#include "nimble/kernels/gemm_tile.h"
#include "nimble/kernels/image_rows.h"
#include "nimble/kernels/pack_weights.h"
#include "nimble/kernels/panel_kernel.h"
#include "nimble/kernels/panels.h"
#include "nimble/kernels/winograd_transforms.h"

namespace nimble {
namespace {

// What the transformed tiles of a block may take: they are read once per panel of weights and have
// to stay in a second-level cache of 2 MiB.
constexpr int64_t kBlockBytes = 1 << 20;
// Matrices for the points of a tile follow each other at this distance beyond their size: at a
// multiple of 4 KiB they would all fall into the same lines of the first-level cache.
constexpr int64_t kApart = 16;

// For a block of tiles:
//
//   transform the input: one matrix [tile, input channel] for each of points² points
//   for each panel of output channels
//     for each point: multiply its matrix with its transformed weights
//     transform the sums to pixels
class Winograd final : public PanelKernel {
 public:
  Winograd(const Convolution& convolution, std::span<const TensorDesc> operands,
           const GemmTiles& tiles, int64_t size)
      : convolution_(convolution),
        tiles_(tiles),
        transforms_(winograd_transforms(size)),
        size_(size),
        points_(winograd_points(size) * winograd_points(size)),
        weight_(operands[1]),
        bias_stride_(convolution.bias ? operands[2].strides[0] : 0),
        output_index_(operands.size() - 1) {
    grid_.input = ImageRows(operands[0]);
    grid_.output = ImageRows(operands.back());
    grid_.top = convolution.padding[0];
    grid_.left = convolution.padding[1];
    grid_.tile_rows = (grid_.output.height() + size - 1) / size;
    grid_.tile_columns = (grid_.output.width() + size - 1) / size;
    if (convolution.epilogue.add) {
      addend_index_ = convolution.addend_operand();
      addend_ = ImageRows(operands[addend_index_]);
    }
    const int64_t lanes = tiles.lanes;
    channels_ = (grid_.input.channels() + lanes - 1) / lanes * lanes;

    const int64_t all =
        std::max<int64_t>(grid_.output.batch() * grid_.tile_rows * grid_.tile_columns, 1);
    const int64_t widest = tiles.max_vectors * lanes;
    const int64_t most =
        std::max<int64_t>(kBlockBytes / (points_ * 4 * (channels_ + widest)), tiles.max_rows[2]);
    block_ = balanced(all, most);
    double best = 0;
    for (int64_t vectors = 1; vectors <= tiles.max_vectors; ++vectors) {
      const Panels panels = Panels::cut(weight_.sizes[0], weight_.sizes[1], lanes, vectors);
      const double cycles = panels.estimate(tiles, 1, block_);
      if (vectors > 1 && cycles >= best) continue;
      best = cycles;
      panels_ = panels;
    }
  }

  // Cycles, roughly. Weights that do not stay in a cache take longer to read than to use, as there
  // are many of them for a tile.
  double estimate() const {
    constexpr double kBytesPerCycle = 6.5;
    constexpr double kTransformCycles = 3;  // of a vector, per point
    const double all =
        static_cast<double>(grid_.output.batch() * grid_.tile_rows * grid_.tile_columns);
    const double blocks = all / static_cast<double>(block_);
    const double weights = 4 * static_cast<double>(points_ * weight_.sizes[1] * columns());
    const double stream = weights > kBlockBytes ? weights / kBytesPerCycle : 0;
    const int64_t vector_count = (channels_ + columns()) / tiles_.lanes;
    const auto vectors = static_cast<double>(vector_count);
    return blocks * (static_cast<double>(points_) * panels_.estimate(tiles_, 1, block_) + stream) +
           kTransformCycles * static_cast<double>(points_) * all * vectors;
  }

  std::string name() const override {
    return message("convolution.winograd ", size_, "x", size_, " ",
                   tiles_.max_rows[panels_.vectors], "x", panels_.width());
  }

  Work work() const override {
    const ImageRows& output = grid_.output;
    if (output.numel() == 0) return {0, 1, 0, 0};
    // Tiles begin anew in each image.
    const bool even = output.batch() == 1 || output.height() % size_ == 0;
    return {output.batch() * output.height(), even ? size_ : output.height(), output.channels(),
            panels_.width()};
  }

  size_t scratch_bytes(const Part& part) const override {
    const int64_t count = block_of(tiles_of(part).count);
    const int64_t patch = winograd_points(size_) * winograd_points(size_) * channels_;
    return static_cast<size_t>(points_ * (value_stride(count) + sum_stride(count)) + patch) *
           sizeof(float);
  }

  size_t packed_bytes() const override {
    const int64_t plain = convolution_.constant_weight ? 9 * weight_.sizes[1] * columns() : 0;
    return static_cast<size_t>(plain_offset() + plain) * sizeof(float);
  }

  void pack_columns(void* const* operands, int64_t begin, int64_t end,
                    std::byte* packed) const override {
    const float* weight = static_cast<const float*>(operands[1]);
    const float* bias = convolution_.bias ? static_cast<const float*>(operands[2]) : nullptr;
    float* to = reinterpret_cast<float*>(packed);
    for (int64_t panel = begin / panels_.width(); panels_.begin(panel) < end; ++panel) {
      const int64_t first = panels_.begin(panel);
      float* bias_to = to + bias_offset(panel);
      for (int64_t c = 0; c < panels_.stride_of(panel); ++c)
        bias_to[c] =
            bias != nullptr && c < panels_.columns_of(panel) ? bias[(first + c) * bias_stride_] : 0;
      pack_panel(weight + first * weight_.strides[0], panel, to);
    }
  }

  // For weights that are no constants, all there is; else the plain weights lie elsewhere.
  PackedRange column_bytes(int64_t begin, int64_t end) const override {
    const int64_t last = (end + panels_.width() - 1) / panels_.width();
    const int64_t end_offset = last < panels_.count() ? panel_offset(last) : plain_offset();
    return {static_cast<size_t>(panel_offset(begin / panels_.width())) * sizeof(float),
            static_cast<size_t>(end_offset) * sizeof(float)};
  }
  PackedRange packed_range(const Part& part) const override {
    return column_bytes(part.column_begin, part.column_end);
  }

  void run(const KernelArguments& arguments) const override {
    const Tiles all = tiles_of(arguments.part);
    FetchCursor next(arguments.next);
    const int64_t block = block_of(all.count);
    for (int64_t begin = all.begin; begin < all.begin + all.count; begin += block)
      run_block(arguments, begin, std::min(begin + block, all.begin + all.count), block, next);
  }

 private:
  struct Tiles {
    int64_t begin, count;
  };

  static int64_t balanced(int64_t all, int64_t most) {
    const int64_t count = (all + most - 1) / most;
    return (all + count - 1) / count;
  }
  int64_t block_of(int64_t tiles) const { return balanced(std::max<int64_t>(tiles, 1), block_); }

  Tiles tiles_of(const Part& part) const {
    const int64_t height = grid_.output.height();
    const auto row = [&](int64_t y) {
      return y / height * grid_.tile_rows + (y % height + size_ - 1) / size_;
    };
    const int64_t begin = row(part.row_begin) * grid_.tile_columns;
    return {begin, row(part.row_end) * grid_.tile_columns - begin};
  }

  int64_t value_stride(int64_t tiles) const { return tiles * channels_ + kApart; }
  int64_t sum_stride(int64_t tiles) const { return tiles * panels_.width() + kApart; }

  // Packed: for each panel, for each point, its weights, then the bias. If weights are constants,
  // and not kept by anybody else, the plain ones follow: [panel][tap][input channel][column].
  int64_t columns() const {
    return (weight_.sizes[0] + tiles_.lanes - 1) / tiles_.lanes * tiles_.lanes;
  }
  int64_t panel_offset(int64_t panel) const {
    return (points_ * weight_.sizes[1] + 1) * panels_.begin(panel);
  }
  int64_t bias_offset(int64_t panel) const {
    return panel_offset(panel) + points_ * weight_.sizes[1] * panels_.stride_of(panel);
  }
  int64_t plain_offset() const { return (points_ * weight_.sizes[1] + 1) * columns(); }

  WeightBlock plain_weights(const float* weight, int64_t panel, int64_t begin, int64_t end) const {
    const auto& s = weight_.strides;
    return {.weight = weight + begin * s[1],
            .strides = {s[0], s[1], s[2], s[3]},
            .columns = panels_.columns_of(panel),
            .inputs = end - begin,
            .kernel = {3, 3}};
  }

  void pack_panel(const float* weight, int64_t panel, float* to) const {
    constexpr int64_t kAtOnce = 8;  // input channels
    alignas(64) float plain[9 * kAtOnce * kMaxTileVectors * 16];
    const int64_t inputs = weight_.sizes[1];
    const int64_t stride = panels_.stride_of(panel);
    for (int64_t i = 0; i < inputs; i += kAtOnce) {
      const int64_t end = std::min(i + kAtOnce, inputs);
      pack_weights(plain_weights(weight, panel, i, end), plain, stride);
      transforms_.weights({.weights = plain,
                           .inputs = end - i,
                           .outputs = stride,
                           .to = to + panel_offset(panel) + i * stride,
                           .point_stride = inputs * stride});
    }
    if (convolution_.constant_weight)
      pack_weights(plain_weights(weight, panel, 0, inputs),
                   to + plain_offset() + 9 * inputs * panels_.begin(panel), stride);
  }

  void run_block(const KernelArguments& arguments, int64_t begin, int64_t end, int64_t block,
                 FetchCursor& next) const {
    const Part& part = arguments.part;
    float* values = reinterpret_cast<float*>(arguments.scratch);
    float* sums = values + points_ * value_stride(block);
    float* patch = sums + points_ * sum_stride(block);
    const float* input = static_cast<const float*>(arguments.operands[0]);
    const float* packed = reinterpret_cast<const float*>(arguments.packed);

    transforms_.input({&grid_, input, begin, end, values, value_stride(block), channels_, patch});

    static constexpr int64_t kNoOffset = 0;
    static const Epilogue kNothing;
    const int64_t depth = weight_.sizes[1];
    for (int64_t panel = part.column_begin / panels_.width();
         panels_.begin(panel) < part.column_end; ++panel) {
      const int64_t stride = panels_.stride_of(panel);
      const float* weights = packed + panel_offset(panel);
      for (int64_t point = 0; point < points_; ++point) {
        GemmTile tile{.a = values + point * value_stride(block),
                      .a_row = channels_,
                      .runs = &kNoOffset,
                      .run_count = 1,
                      .run_length = depth,
                      .b = weights + point * depth * stride,
                      .c = sums + point * sum_stride(block),
                      .c_row = stride,
                      .columns = stride,
                      .epilogue = &kNothing};
        const bool last = point + 1 == points_ && panels_.begin(panel + 1) >= part.column_end;
        if (last) {
          next.give_to(tile);
        } else {  // the next point's weights follow
          tile.ahead = tile.b + depth * stride;
          tile.ahead_end = tile.ahead + depth * stride;
        }
        tiles_.run(tile, static_cast<int>(panels_.vectors_of(panel)), end - begin);
        if (last) next.take_from(tile);
      }
      const int64_t column = panels_.begin(panel);
      const auto& s = weight_.strides;
      const bool constant = convolution_.constant_weight;
      const float* plain = constant
                               ? packed + plain_offset() + 9 * depth * column
                               : static_cast<const float*>(arguments.operands[1]) + column * s[0];
      std::array<int64_t, 4> plain_strides = {s[0], s[1], s[2], s[3]};
      if (constant) plain_strides = {1, stride, 3 * depth * stride, depth * stride};
      transforms_.output(
          {.grid = &grid_,
           .sums = sums,
           .point_stride = sum_stride(block),
           .tile_stride = stride,
           .begin = begin,
           .end = end,
           .columns = panels_.columns_of(panel),
           .bias = packed + bias_offset(panel),
           .output = static_cast<float*>(arguments.operands[output_index_]) + column,
           .addend = addend_index_ == 0
                         ? nullptr
                         : static_cast<const float*>(arguments.operands[addend_index_]) + column,
           .addend_rows = &addend_,
           .epilogue = &convolution_.epilogue,
           .input = input,
           .weights = plain,
           .weight_strides = plain_strides});
    }
  }

  Convolution convolution_;
  const GemmTiles& tiles_;
  WinogradTransforms transforms_;
  int64_t size_;
  int64_t points_;  // of a tile, in both directions
  TensorDesc weight_;
  int64_t bias_stride_;
  WinogradGrid grid_;
  ImageRows addend_;
  size_t output_index_;
  size_t addend_index_ = 0;  // 0: none
  int64_t channels_ = 0;     // of the input, up to a whole vector
  int64_t block_ = 1;        // tiles at most
  Panels panels_;
};

}  // namespace

std::vector<RankedKernel> winograd_candidates(const Convolution& convolution,
                                              std::span<const TensorDesc> operands) {
  const std::array<int64_t, 2> ones = {1, 1};
  const auto& weight = operands[1].sizes;
  if (!convolution.allow_winograd || convolution.groups != 1 || convolution.relu_input ||
      convolution.scale_input || weight[2] != 3 || weight[3] != 3 || convolution.stride != ones ||
      convolution.dilation != ones)
    return {};
  const ImageRows input(operands[0]);
  const ImageRows output(operands.back());
  if (!input.channels_last() || !output.channels_last()) return {};
  if (convolution.epilogue.add && !ImageRows(operands[operands.size() - 2]).channels_last())
    return {};
  // With few channels the transforms cost more than is saved.
  if (input.channels() < 8 || output.channels() < 8) return {};
  const GemmTiles& tiles = gemm_tiles();
  std::vector<RankedKernel> list;
  const auto add = [&](int64_t size) {
    auto kernel = std::make_shared<Winograd>(convolution, operands, tiles, size);
    list.push_back({kernel->estimate(), kernel});
  };
  add(4);
  // Small images: less is computed beyond their end, and fewer weights are read.
  if (output.height() <= 16 && output.width() <= 16) add(2);
  return list;
}

}  // namespace nimble
