#include <algorithm>
#include <utility>

#include "nimble/base/error.h"
#include "nimble/kernels/depthwise.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/gemm_tile.h"
#include "nimble/kernels/image_rows.h"
#include "nimble/kernels/panels.h"

namespace nimble {
namespace {

// The operands' places.
struct Operands {
  explicit Operands(const SeparableConvolution& both) {
    depthwise_bias = both.depthwise.bias ? next++ : 0;
    pointwise_weight = next++;
    pointwise_bias = both.pointwise.bias ? next++ : 0;
    addend = both.pointwise.epilogue.add ? next++ : 0;
    output = next;
  }
  static constexpr size_t input = 0;
  static constexpr size_t depthwise_weight = 1;
  size_t next = 2;
  size_t depthwise_bias, pointwise_weight, pointwise_bias, addend, output;  // 0: none
};

int64_t round_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

//   for each block of rows
//     depthwise: the block's pixels to scratch
//     for each panel of output channels: tiles of pixels
class Separable final : public Kernel {
 public:
  Separable(const SeparableConvolution& both, std::span<const TensorDesc> operands,
            std::shared_ptr<const DepthwiseRows> depthwise, const GemmTiles& tiles,
            const Panels& panels)
      : both_(both),
        places_(both),
        depthwise_(std::move(depthwise)),
        tiles_(tiles),
        weight_(operands[places_.pointwise_weight]),
        output_(operands[places_.output]),
        channels_(operands[0].sizes[1]),
        panels_(panels) {
    if (places_.addend) addend_ = ImageRows(operands[places_.addend]);
    // Pixels begin at a cache line, and not all at the same place of a page.
    pixel_ = round_up(channels_, tiles.lanes);
    if (pixel_ % 1024 == 0) pixel_ += tiles.lanes;

    // Measured: the tiles hardly care whether pixels come from L1 or L2, but many weights, which
    // come from L2 or further for every block, want few blocks.
    constexpr int64_t kFewWeights = 256 << 10;
    constexpr int64_t kBlock = 128 << 10;
    constexpr int64_t kLargeBlock = 512 << 10;
    const int64_t block = panels_.packed_size() * 4 > kFewWeights ? kLargeBlock : kBlock;
    const int64_t rows = std::max<int64_t>(output_.batch() * output_.height(), 1);
    const int64_t row_bytes = std::max<int64_t>(output_.width() * pixel_ * 4, 1);
    const int64_t most = std::clamp<int64_t>(block / row_bytes, 1, rows);
    const int64_t blocks = (rows + most - 1) / most;
    block_rows_ = (rows + blocks - 1) / blocks;

    const auto follow = [&](auto&& test) {
      return test(output_) && (!places_.addend || test(addend_));
    };
    line_rows_ = 1;
    if (follow([](const ImageRows& image) { return image.rows_follow(); }))
      line_rows_ = std::max<int64_t>(output_.height(), 1);
    if (follow([](const ImageRows& image) { return image.images_follow(); })) line_rows_ = rows;
  }

  std::string name() const override {
    return message("separable ", block_rows_, " rows, ", tiles_.max_rows[panels_.vectors], "x",
                   panels_.width());
  }
  Work work() const override {
    if (output_.numel() == 0) return {0, 1, 0, 0};
    return {output_.batch() * output_.height(), 1, output_.channels(), 0};
  }
  size_t scratch_bytes(const Part& part) const override {
    const int64_t rows = std::min(block_rows_, part.row_end - part.row_begin);
    return static_cast<size_t>(rows * output_.width() * pixel_) * sizeof(float);
  }
  size_t packed_bytes() const override {
    return panels_offset() + static_cast<size_t>(panels_.packed_size()) * sizeof(float);
  }

  void pack(void* const* operands, std::byte* packed) const override {
    const auto at = [&](size_t place) {
      return place ? static_cast<const float*>(operands[place]) : nullptr;
    };
    depthwise_->pack(at(places_.depthwise_weight), at(places_.depthwise_bias), packed);
    const float* weight = at(places_.pointwise_weight);
    const float* bias = at(places_.pointwise_bias);
    float* panels = reinterpret_cast<float*>(packed + panels_offset());
    for (int64_t panel = 0; panel < panels_.count(); ++panel) {
      const int64_t first = panels_.begin(panel);
      const int64_t columns = panels_.columns_of(panel);
      const int64_t stride = panels_.stride_of(panel);
      float* to = panels + panels_.bias_offset(panel);
      for (int64_t c = 0; c < stride; ++c) *to++ = bias && c < columns ? bias[first + c] : 0.0f;
      for (int64_t k = 0; k < channels_; ++k)
        for (int64_t c = 0; c < stride; ++c)
          *to++ = c < columns ? weight[(first + c) * weight_.strides[0] + k * weight_.strides[1]]
                              : 0.0f;
    }
  }

  void run(const KernelArguments& arguments) const override {
    const Part& part = arguments.part;
    FetchCursor next(arguments.next);
    for (int64_t row = part.row_begin; row < part.row_end; row += block_rows_) {
      const int64_t end = std::min(row + block_rows_, part.row_end);
      run_depthwise(arguments, row, end);
      run_pointwise(arguments, row, end, next);
    }
  }

 private:
  size_t panels_offset() const {
    return static_cast<size_t>(round_up(static_cast<int64_t>(depthwise_->packed_bytes()), 64));
  }

  void run_depthwise(const KernelArguments& arguments, int64_t begin, int64_t end) const {
    DepthwiseRows::Arguments row{};
    row.input = static_cast<const float*>(arguments.operands[0]);
    row.packed = arguments.packed;
    row.output_pixel = pixel_;
    const int64_t block = end - begin > 1 ? depthwise_->channel_block() : channels_;
    for (int64_t c = 0; c < channels_; c += block) {
      row.channel_begin = c;
      row.channel_end = std::min(c + block, channels_);
      row.output = reinterpret_cast<float*>(arguments.scratch) + c;
      for (row.row = begin; row.row < end; ++row.row) {
        depthwise_->run(row);
        row.output += output_.width() * pixel_;
      }
    }
  }

  void run_pointwise(const KernelArguments& arguments, int64_t begin, int64_t end,
                     FetchCursor& next) const {
    static constexpr int64_t kOneRun = 0;
    const float* packed = reinterpret_cast<const float*>(arguments.packed + panels_offset());
    float* output = static_cast<float*>(arguments.operands[places_.output]);
    const float* addend =
        places_.addend ? static_cast<const float*>(arguments.operands[places_.addend]) : nullptr;
    // Few weights have been fetched by the task before.
    const bool fetched = !next.done() && packed_bytes() <= kMostFetchedAhead;
    for (int64_t panel = 0; panel < panels_.count(); ++panel) {
      const int64_t column = panels_.begin(panel);
      GemmTile tile{.a_row = pixel_,
                    .runs = &kOneRun,
                    .run_count = 1,
                    .run_length = channels_,
                    .b = packed + panels_.offset(panel),
                    .bias = packed + panels_.bias_offset(panel),
                    .c_row = output_.pixel(),
                    .addend_row = addend_.pixel(),
                    .columns = panels_.columns_of(panel),
                    .epilogue = &both_.pointwise.epilogue};
      const bool within = panel + 1 < panels_.count() && !fetched;
      if (within) {
        tile.ahead = packed + panels_.offset(panel + 1);
        tile.ahead_end = tile.ahead + panels_.depth * panels_.stride_of(panel + 1);
      } else {
        next.give_to(tile);
      }
      for (int64_t row = begin; row < end;) {
        const int64_t line_end = std::min(end, (row / line_rows_ + 1) * line_rows_);
        const int64_t image = row / output_.height();
        const int64_t y = row % output_.height();
        tile.a = reinterpret_cast<const float*>(arguments.scratch) +
                 (row - begin) * output_.width() * pixel_;
        tile.c = output + output_.offset(image, y) + column;
        if (addend) tile.addend = addend + addend_.offset(image, y) + column;
        tiles_.run(tile, static_cast<int>(panels_.vectors_of(panel)),
                   (line_end - row) * output_.width());
        row = line_end;
      }
      if (!within) next.take_from(tile);
    }
  }

  SeparableConvolution both_;
  Operands places_;
  std::shared_ptr<const DepthwiseRows> depthwise_;
  const GemmTiles& tiles_;
  TensorDesc weight_;
  ImageRows output_;
  ImageRows addend_;
  int64_t channels_;
  int64_t pixel_ = 0;       // between pixels in scratch
  int64_t block_rows_ = 1;  // computed while they are in cache
  int64_t line_rows_ = 1;   // of evenly spaced pixels
  Panels panels_;
};

}  // namespace

std::vector<KernelPtr> separable_candidates(const SeparableConvolution& both,
                                            std::span<const TensorDesc> operands) {
  const Operands places(both);
  const TensorDesc& input = operands[0];
  const TensorDesc& output = operands[places.output];
  const TensorDesc& pointwise = operands[places.pointwise_weight];
  const auto is_one = [](const auto& pair) { return pair[0] == 1 && pair[1] == 1; };
  if (both.pointwise.groups != 1 || !is_one(both.pointwise.stride) ||
      both.pointwise.padding != std::array<int64_t, 2>{} || both.pointwise.relu_input ||
      both.pointwise.scale_input || pointwise.sizes[2] != 1 || pointwise.sizes[3] != 1 ||
      both.depthwise.epilogue.add)
    return {};
  if (!ImageRows(output).channels_last() ||
      (places.addend && !ImageRows(operands[places.addend]).channels_last()))
    return {};
  const auto rows =
      make_depthwise_rows(both.depthwise, input, operands[places.depthwise_weight],
                          {output.sizes[0], input.sizes[1], output.sizes[2], output.sizes[3]});
  if (!rows) return {};

  // The two most promising widths of panels.
  const GemmTiles& tiles = gemm_tiles();
  const int64_t pixels = output.sizes[0] * output.sizes[2] * output.sizes[3];
  std::vector<std::pair<double, Panels>> choices;
  for (int64_t most = 1; most <= tiles.max_vectors; ++most) {
    const Panels panels = Panels::cut(output.sizes[1], input.sizes[1], tiles.lanes, most);
    if (panels.vectors == most) choices.emplace_back(panels.estimate(tiles, 1, pixels), panels);
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<KernelPtr> list;
  for (const auto& [cycles, panels] : choices)
    if (list.empty() || (list.size() == 1 && cycles < 1.3 * choices[0].first))
      list.push_back(std::make_shared<Separable>(both, operands, rows, tiles, panels));
  return list;
}

}  // namespace nimble
