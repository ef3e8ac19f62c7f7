#include "nimble/kernels/pixelwise_convolution.h"

#include <algorithm>

#include "nimble/base/error.h"
#include "nimble/kernels/gemm_tile.h"
#include "nimble/kernels/image_rows.h"
#include "nimble/kernels/pack_weights.h"
#include "nimble/kernels/panel_kernel.h"
#include "nimble/kernels/panels.h"

namespace nimble {
namespace {

constexpr int64_t kFewestImages = 4;  // rows of a tile
constexpr int64_t kMostPixels = 64;   // of an image; larger ones have rows long enough for a tile

struct Taps {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};

// Those of a window at output index `at` that lie in [0, size).
Taps taps_inside(int64_t at, int64_t stride, int64_t padding, int64_t dilation, int64_t kernel,
                 int64_t size) {
  const int64_t first = at * stride - padding;
  const int64_t begin = first >= 0 ? 0 : (-first + dilation - 1) / dilation;
  const int64_t end = first >= size ? 0 : (size - first + dilation - 1) / dilation;
  Taps taps = {std::min(begin, kernel), std::min(end, kernel)};
  if (taps.begin >= taps.end) taps = {};
  return taps;
}

//   for each panel of output channels
//     for each pixel
//       for each row of taps that are inside: tiles over all images
class PixelwiseConvolution final : public PanelKernel {
 public:
  PixelwiseConvolution(const Convolution& convolution, std::span<const TensorDesc> operands,
                       const GemmTiles& tiles, int64_t most_vectors)
      : convolution_(convolution),
        tiles_(tiles),
        input_(operands[0]),
        weight_(operands[1]),
        bias_stride_(convolution.bias ? operands[2].strides[0] : 0),
        output_(operands.back()),
        output_index_(operands.size() - 1) {
    if (convolution.epilogue.add) {
      addend_index_ = convolution.addend_operand();
      addend_ = ImageRows(operands[addend_index_]);
    }
    plan_taps(0, input_.height(), output_.height());
    plan_taps(1, input_.width(), output_.width());
    const int64_t depth = used_[0].count() * used_[1].count() * input_.channels();
    panels_ = Panels::cut(output_.channels(), depth, tiles.lanes, most_vectors);
    dense_ = input_.pixel() == input_.channels() && convolution.dilation[1] == 1;
    for (int64_t x = 0; x < used_[1].count(); ++x)
      runs_.push_back(x * convolution.dilation[1] * input_.pixel());
  }

  double estimate() const {
    int64_t taps = 0;
    for (const Taps& y : inside_[0])
      for (const Taps& x : inside_[1]) taps += y.count() * x.count();
    const int64_t pixels = output_.height() * output_.width();
    Panels average = panels_;
    average.depth = std::max<int64_t>(taps * input_.channels() / pixels, 1);
    return average.estimate(tiles_, pixels, output_.batch());
  }

  std::string name() const override {
    return message("convolution.pixelwise ", tiles_.max_rows[panels_.vectors], "x",
                   panels_.width());
  }

  Work work() const override {
    return {output_.batch() * output_.height(), output_.height(), output_.channels(),
            panels_.width()};
  }

  size_t packed_bytes() const override {
    return static_cast<size_t>(panels_.packed_size()) * sizeof(float);
  }
  PackedRange packed_range(const Part& part) const override {
    return column_bytes(part.column_begin, part.column_end);
  }
  PackedRange column_bytes(int64_t begin, int64_t end) const override {
    return panels_.range(begin, end);
  }

  void pack_columns(void* const* operands, int64_t begin, int64_t end,
                    std::byte* packed) const override {
    const auto* weight = static_cast<const float*>(operands[1]);
    const float* bias = convolution_.bias ? static_cast<const float*>(operands[2]) : nullptr;
    const auto& s = weight_.strides;
    for (int64_t panel = begin / panels_.width(); panels_.begin(panel) < end; ++panel) {
      const int64_t first = panels_.begin(panel);
      const int64_t columns = panels_.columns_of(panel);
      const int64_t stride = panels_.stride_of(panel);
      float* to = reinterpret_cast<float*>(packed) + panels_.bias_offset(panel);
      for (int64_t c = 0; c < stride; ++c)
        to[c] = bias != nullptr && c < columns ? bias[(first + c) * bias_stride_] : 0;
      pack_weights({.weight = weight + first * s[0] + used_[0].begin * s[2] + used_[1].begin * s[3],
                    .strides = {s[0], s[1], s[2], s[3]},
                    .columns = columns,
                    .inputs = input_.channels(),
                    .kernel = {used_[0].count(), used_[1].count()}},
                   to + stride, stride);
    }
  }

  void run(const KernelArguments& arguments) const override {
    const Part& part = arguments.part;
    FetchCursor next(arguments.next);
    for (int64_t panel = part.column_begin / panels_.width();
         panels_.begin(panel) < part.column_end; ++panel)
      for (int64_t y = 0; y < output_.height(); ++y)
        for (int64_t x = 0; x < output_.width(); ++x) run_pixel(arguments, panel, y, x, next);
  }

 private:
  void plan_taps(size_t d, int64_t size, int64_t output_size) {
    Taps& used = used_[d];
    for (int64_t at = 0; at < output_size; ++at) {
      const Taps taps = taps_inside(at, convolution_.stride[d], convolution_.padding[d],
                                    convolution_.dilation[d], weight_.sizes[d + 2], size);
      inside_[d].push_back(taps);
      if (taps.count() == 0) continue;
      if (used.count() == 0) used = taps;
      used = {std::min(used.begin, taps.begin), std::max(used.end, taps.end)};
    }
  }

  void run_pixel(const KernelArguments& arguments, int64_t panel, int64_t y, int64_t x,
                 FetchCursor& next) const {
    static const Epilogue kNothing;
    const int64_t height = output_.height();
    const int64_t image = arguments.part.row_begin / height;
    const int64_t images = arguments.part.row_end / height - image;
    const Taps& rows = inside_[0][y];
    const Taps& columns = inside_[1][x];
    const bool none = rows.count() == 0 || columns.count() == 0;
    const int64_t channels = input_.channels();
    const int64_t stride = panels_.stride_of(panel);
    const auto* input = static_cast<const float*>(arguments.operands[0]);
    const auto* packed = reinterpret_cast<const float*>(arguments.packed);
    const auto at = [&](const ImageRows& rows_of) {
      return rows_of.offset(image, y) + x * rows_of.pixel() + panels_.begin(panel);
    };
    GemmTile tile{.a_row = input_.image(),
                  .runs = runs_.data(),
                  .run_count = none     ? 0
                               : dense_ ? 1
                                        : columns.count(),
                  .run_length = dense_ ? columns.count() * channels : channels,
                  .bias = packed + panels_.bias_offset(panel),
                  .c = static_cast<float*>(arguments.operands[output_index_]) + at(output_),
                  .c_row = output_.image(),
                  .addend_row = addend_.image(),
                  .columns = panels_.columns_of(panel),
                  .epilogue = &kNothing};
    const int64_t first_row = y * convolution_.stride[0] - convolution_.padding[0];
    const int64_t first_column = x * convolution_.stride[1] - convolution_.padding[1] +
                                 columns.begin * convolution_.dilation[1];
    for (int64_t tap = rows.begin; none || tap < rows.end; ++tap) {
      if (!none) {
        tile.a = input + input_.offset(image, first_row + tap * convolution_.dilation[0]) +
                 first_column * input_.pixel();
        const int64_t packed_tap =
            (tap - used_[0].begin) * used_[1].count() + columns.begin - used_[1].begin;
        tile.b = packed + panels_.offset(panel) + packed_tap * channels * stride;
      }
      if (none || tap + 1 == rows.end) {
        tile.epilogue = &convolution_.epilogue;
        if (addend_index_ != 0)
          tile.addend = static_cast<const float*>(arguments.operands[addend_index_]) + at(addend_);
      }
      next.give_to(tile);
      tiles_.run(tile, static_cast<int>(panels_.vectors_of(panel)), images);
      next.take_from(tile);
      tile.goes_on = true;
      if (none) break;
    }
  }

  Convolution convolution_;
  const GemmTiles& tiles_;
  ImageRows input_;
  TensorDesc weight_;
  int64_t bias_stride_;
  ImageRows output_;
  ImageRows addend_;
  size_t output_index_;
  size_t addend_index_ = 0;      // 0: none
  std::vector<Taps> inside_[2];  // by output row, by output column
  Taps used_[2];                 // by any
  bool dense_ = false;           // the taps of a row are one run
  std::vector<int64_t> runs_;
  Panels panels_;
};

}  // namespace

std::vector<RankedKernel> pixelwise_convolution_candidates(const Convolution& convolution,
                                                           std::span<const TensorDesc> operands) {
  const ImageRows output(operands.back());
  if (convolution.groups != 1 || convolution.relu_input || convolution.scale_input) return {};
  if (output.numel() == 0 || output.batch() < kFewestImages ||
      output.height() * output.width() > kMostPixels)
    return {};
  if (!output.channels_last() || !ImageRows(operands[0]).channels_last()) return {};
  if (convolution.epilogue.add && !ImageRows(operands[operands.size() - 2]).channels_last())
    return {};
  const GemmTiles& tiles = gemm_tiles();
  std::vector<RankedKernel> list;
  for (int64_t most = 1; most <= tiles.max_vectors; ++most) {
    if (Panels::cut(output.channels(), 1, tiles.lanes, most).vectors != most) continue;
    auto kernel = std::make_shared<PixelwiseConvolution>(convolution, operands, tiles, most);
    list.push_back({kernel->estimate(), kernel});
  }
  return list;
}

}  // namespace nimble
