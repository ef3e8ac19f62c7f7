// Longer than others: the copies, blocks and stretches of one loop nest belong together.
#include "nimble/kernels/dense_convolution.h"

#include <algorithm>
#include <cstring>

#include "nimble/base/error.h"
#include "nimble/kernels/gemm_tile.h"
#include "nimble/kernels/image_rows.h"
#include "nimble/kernels/pack_weights.h"
#include "nimble/kernels/panel_kernel.h"
#include "nimble/kernels/panels.h"

namespace nimble {
namespace {

// What a block of rows may take, input and output: with a panel of weights it has to stay in a
// second-level cache of 2 MiB.
constexpr int64_t kBlockBytes = 1 << 20;
// Of the output, up to which unfolding may be worth its memory.
constexpr int64_t kUnfoldedWidth = 36;
constexpr double kCopyCycles = 0.2;  // per float of a copy
// Deep 1x1 convolutions whose input is too large for one block, and whose weights would then come
// from far away for every block: channels are taken in stretches of which all pixels fit.
constexpr int64_t kStretchBytes = 512 << 10;
constexpr int64_t kShortestStretch = 256;
constexpr int64_t kManyWeightBytes = 128 << 10;
constexpr double kStretchedShare = 0.97;  // of the time, as expected
// A scaled input: the weights are scaled instead where they are so much smaller than an image that
// each of several parts can do so.
constexpr int64_t kImagePerScaledWeights = 4;

// Few weights and an output that comes from far away: small blocks, and where the next one will be
// written is fetched beside the work on this one.
constexpr int64_t kFarOutputBytes = 2 << 20;
constexpr int64_t kFewWeightBytes = 128 << 10;
constexpr int64_t kSmallBlockBytes = 256 << 10;

// Where windows are read: in the input itself, in a padded copy of rows, or in a copy where every
// pixel is followed by those right of it in its window. The latter takes more memory, but the
// windows of all rows are then evenly spaced, and tiles may go over the end of a row.
enum class Reading { kInPlace, kCopied, kUnfolded };
constexpr const char* kReadingNames[] = {"", " copy", " unfold"};

// A block is the rows of the output that are computed while their input is in cache:
//
//   for each image, if weights are scaled: scale them
//   for each block of rows
//     copy and pad or scale its input, if it cannot be read in place
//     for each stretch of input channels, usually all of them
//       for each panel of output channels
//         for each line of pixels: tiles
class DenseConvolution final : public PanelKernel {
 public:
  DenseConvolution(const Convolution& convolution, std::span<const TensorDesc> operands,
                   const GemmTiles& tiles, int64_t most_vectors, Reading reading,
                   bool in_stretches = false)
      : convolution_(convolution),
        window_(convolution, operands, reading == Reading::kUnfolded),
        tiles_(tiles),
        reading_(reading),
        copy_(reading != Reading::kInPlace),
        scales_weights_(convolution.scale_input && !copy_),
        input_(operands[0]),
        weight_(operands[1]),
        bias_stride_(convolution.bias ? operands[2].strides[0] : 0),
        output_(operands.back()),
        output_index_(operands.size() - 1) {
    if (convolution.scale_input) scale_ = ImageRows(operands[convolution.scale_operand()]);
    if (convolution.epilogue.add) {
      addend_index_ = convolution.addend_operand();
      addend_ = ImageRows(operands[addend_index_]);
    }
    group_in_ = weight_.sizes[1];
    group_out_ = weight_.sizes[0] / convolution.groups;
    const int64_t depth = group_in_ * window_.kernel[0] * window_.kernel[1];
    panels_ = Panels::cut(group_out_, depth, tiles.lanes, most_vectors);
    single_ = output_.batch() * output_.height() * output_.width() == 1;
    plan_reads();
    stretch_ = std::max<int64_t>(run_length_, 1);
    if (in_stretches) plan_stretches();
    plan_blocks();
  }

  std::string name() const override {
    return message("convolution.dense ", single_ ? 1 : tiles_.max_rows[panels_.vectors], "x",
                   panels_.width(), kReadingNames[static_cast<size_t>(reading_)],
                   scales_weights_ ? " scaled weights" : "",
                   stretch_ < run_length_ ? message(" by ", stretch_) : "");
  }

  // Whether the weights would come from far away more than once.
  bool wants_stretches() const {
    return window_.pointwise() && convolution_.groups == 1 && reading_ == Reading::kInPlace &&
           block_rows_ < output_.batch() * output_.height() &&
           packed_bytes() > static_cast<size_t>(kManyWeightBytes) &&
           run_length_ >= 2 * kShortestStretch;
  }

  Work work() const override {
    const int64_t channels = output_.channels();
    if (output_.numel() == 0) return {0, 1, 0, 0};
    return {output_.batch() * output_.height(), 1, channels,
            convolution_.groups > 1 ? group_out_ : panels_.width()};
  }

  size_t scratch_bytes(const Part& part) const override {
    if (scales_weights_) return packed_range(part).end;
    if (!copy_) return 0;
    const int64_t rows = std::min(block_rows_, part.row_end - part.row_begin);
    return static_cast<size_t>(copied_rows_bound(rows) * copied_row_ + kSlack) * sizeof(float);
  }

  size_t packed_bytes() const override {
    return static_cast<size_t>(convolution_.groups * panels_.packed_size()) * sizeof(float);
  }

  PackedRange packed_range(const Part& part) const override {
    return column_bytes(part.column_begin, part.column_end);
  }

  PackedRange column_bytes(int64_t begin, int64_t end) const override {
    if (convolution_.groups == 1) return panels_.range(begin, end);
    const size_t of_group = static_cast<size_t>(panels_.packed_size()) * sizeof(float);
    return {static_cast<size_t>(begin / group_out_) * of_group,
            static_cast<size_t>((end + group_out_ - 1) / group_out_) * of_group};
  }

  void pack_columns(void* const* operands, int64_t begin, int64_t end,
                    std::byte* packed) const override {
    const float* weight = static_cast<const float*>(operands[1]);
    const float* bias = convolution_.bias ? static_cast<const float*>(operands[2]) : nullptr;
    for (int64_t group = begin / group_out_; group * group_out_ < end; ++group) {
      const int64_t base = group * group_out_;
      const int64_t last = std::min(end - base, group_out_);
      for (int64_t panel = std::max<int64_t>(begin - base, 0) / panels_.width();
           panels_.begin(panel) < last; ++panel)
        pack_panel(weight, bias, group, panel, reinterpret_cast<float*>(packed));
    }
  }

  void run(const KernelArguments& arguments) const override {
    const Part& part = arguments.part;
    FetchCursor next(arguments.next);
    if (!scales_weights_) return run_rows(arguments, part.row_begin, part.row_end, next);
    KernelArguments scaled = arguments;
    scaled.packed = arguments.scratch;
    for (int64_t row = part.row_begin; row < part.row_end;) {
      const int64_t image = row / output_.height();
      const int64_t end = std::min(part.row_end, (image + 1) * output_.height());
      scale_weights(arguments, image);
      run_rows(scaled, row, end, next);
      row = end;
    }
  }

 private:
  static constexpr int64_t kSlack = 16;

  // The lines of some rows of the output; they follow each other.
  FetchCursor output_rows(const KernelArguments& arguments, int64_t begin, int64_t end) const {
    if (!fetches_output_ || begin == end) return FetchCursor({});
    const auto* output = static_cast<const float*>(arguments.operands[output_index_]);
    const auto row = [&](int64_t y) {
      return reinterpret_cast<const std::byte*>(output + y * output_.width() * output_.pixel());
    };
    return FetchCursor({row(begin), row(end)});
  }

  void run_rows(const KernelArguments& arguments, int64_t first, int64_t last,
                FetchCursor& next) const {
    for (int64_t begin = first; begin < last; begin += block_rows_) {
      const int64_t end = std::min(begin + block_rows_, last);
      FetchCursor output_of_next = output_rows(arguments, end, std::min(end + block_rows_, last));
      if (copy_) copy_block(arguments, begin, end);
      for (int64_t k = 0; k == 0 || k < run_length_; k += stretch_)
        run_block(arguments, begin, end, k, fetches_output_ && end < last ? output_of_next : next);
    }
  }

  // The weights for one image, in the same places of the scratch memory. Zeros, infinities and NaN
  // give what they give as factors of the input.
  void scale_weights(const KernelArguments& arguments, int64_t image) const {
    const void* scale = arguments.operands[convolution_.scale_operand()];
    panels_.scale_rows(reinterpret_cast<const float*>(arguments.packed),
                       arguments.part.column_begin, arguments.part.column_end,
                       static_cast<const float*>(scale) + scale_.offset(image, 0), scale_.channel(),
                       reinterpret_cast<float*>(arguments.scratch));
  }

  // Where the windows' elements are, and which rows make one line of evenly spaced pixels.
  void plan_reads() {
    const bool pointwise = window_.pointwise();
    const int64_t channels = input_.sizes[1];
    const ImageRows input(input_);
    int64_t pixel;  // between pixels of the input
    int64_t row;    // between rows of it
    if (copy_) {
      copied_row_ = window_.copied_row();
      pixel = channels;
      row = copied_row_;
    } else {
      pixel = input.pixel();
      row = input.row();
    }
    // A copy of a 1x1 convolution's input has just the pixels it needs.
    const bool compact = copy_ && pointwise;
    const bool unfolded = reading_ == Reading::kUnfolded;
    pixel_step_ =
        unfolded ? channels * window_.kernel[1] : pixel * (compact ? 1 : convolution_.stride[1]);
    row_step_ = row * (compact ? 1 : convolution_.stride[0]);

    const int64_t kernel_width = window_.kernel[1];
    const bool whole_rows = pixel == channels && convolution_.groups == 1 &&
                            (unfolded || convolution_.dilation[1] == 1);
    run_length_ = whole_rows ? kernel_width * channels : group_in_;
    for (int64_t y = 0; y < window_.kernel[0]; ++y)
      for (int64_t x = 0; x < (whole_rows ? 1 : kernel_width); ++x)
        runs_.push_back(y * convolution_.dilation[0] * row +
                        x * (unfolded ? 1 : convolution_.dilation[1]) * pixel);

    line_rows_ = 1;
    if (pointwise) {
      const bool unit = convolution_.stride[0] == 1 && convolution_.stride[1] == 1;
      const auto mergeable = [&](bool rows) {
        const auto fine = [&](const ImageRows& image) {
          return rows ? image.rows_follow() : image.images_follow();
        };
        const bool same_size =
            rows ? input.width() == output_.width() : input.height() == output_.height();
        return (compact || (unit && same_size && fine(input))) && fine(output_) &&
               (addend_index_ == 0 || fine(addend_));
      };
      if (mergeable(true)) line_rows_ = output_.height();
      if (mergeable(true) && mergeable(false)) line_rows_ *= output_.batch();
      line_rows_ = std::max<int64_t>(line_rows_, 1);
    } else if (unfolded && convolution_.stride[0] == 1 && output_.rows_follow() &&
               (addend_index_ == 0 || addend_.rows_follow())) {
      line_rows_ = std::max<int64_t>(output_.height(), 1);
    }
  }

  void plan_stretches() {
    const int64_t pixels = output_.batch() * output_.height() * output_.width();
    const int64_t most =
        std::max(kStretchBytes / 4 / std::max<int64_t>(pixels, 1), kShortestStretch);
    const int64_t count = (stretch_ + most - 1) / most;
    stretch_ = (stretch_ + count - 1) / count;
  }

  void plan_blocks() {
    const int64_t channels = stretch_ < run_length_ ? stretch_ : input_.sizes[1];
    const int64_t row_floats =
        std::max<int64_t>(copy_ ? copied_row_ : channels * input_.sizes[3], 1);
    const int64_t row_bytes =
        4 * (row_floats * convolution_.stride[0] + output_.width() * output_.channels());
    const int64_t rows = std::max<int64_t>(output_.batch() * output_.height(), 1);
    fetches_output_ = !copy_ && output_.pixel() == output_.channels() && output_.rows_follow() &&
                      output_.images_follow() && output_.numel() * 4 > kFarOutputBytes &&
                      packed_bytes() <= static_cast<size_t>(kFewWeightBytes);
    const int64_t block_bytes = fetches_output_ ? kSmallBlockBytes : kBlockBytes;
    // Blocks of about the same size.
    const int64_t most = std::max<int64_t>(block_bytes / row_bytes, 1);
    const int64_t blocks = (rows + most - 1) / most;
    block_rows_ = (rows + blocks - 1) / blocks;
    if (copy_)  // windows overlap: taller blocks, or most of the copying is done twice
      block_rows_ = std::min(rows, std::max(block_rows_, window_.reach()[0]));
  }

  int64_t copied_rows_bound(int64_t rows) const { return window_.copied_rows_bound(rows); }

  void pack_panel(const float* weight, const float* bias, int64_t group, int64_t panel,
                  float* packed) const {
    float* group_packed = packed + group * panels_.packed_size();
    const int64_t columns = panels_.columns_of(panel);
    const int64_t stride = panels_.stride_of(panel);
    float* to = group_packed + panels_.bias_offset(panel);
    const int64_t first = group * group_out_ + panels_.begin(panel);
    for (int64_t c = 0; c < stride; ++c)
      to[c] = bias != nullptr && c < columns ? bias[(first + c) * bias_stride_] : 0;
    const auto& s = weight_.strides;
    pack_weights({.weight = weight + first * s[0],
                  .strides = {s[0], s[1], s[2], s[3]},
                  .columns = columns,
                  .inputs = group_in_,
                  .kernel = window_.kernel},
                 to + stride, stride);
  }

  void copy_block(const KernelArguments& arguments, int64_t begin, int64_t end) const {
    const auto* input = static_cast<const float*>(arguments.operands[0]);
    auto* to = reinterpret_cast<float*>(arguments.scratch);
    if (!convolution_.scale_input)
      return window_.copy_rows(input, begin, end, to, convolution_.relu_input);
    const void* factors = arguments.operands[convolution_.scale_operand()];
    window_.copy_scaled_rows(input, scale_, static_cast<const float*>(factors), begin, end, to);
  }

  // The input channels from k on, if they are taken in stretches.
  void run_block(const KernelArguments& arguments, int64_t begin, int64_t end, int64_t k,
                 FetchCursor& next) const {
    static const Epilogue kNothing;
    const Part& part = arguments.part;
    const bool last_stretch = k + stretch_ >= run_length_;
    const PackedRange own = packed_range(part);
    // Few weights have been fetched by the task before.
    const bool fetched = !next.done() && own.end - own.begin <= kMostFetchedAhead;
    const float* packed = reinterpret_cast<const float*>(arguments.packed);
    const int64_t first_group = part.column_begin / group_out_;
    const int64_t last_group = (part.column_end - 1) / group_out_;
    for (int64_t group = first_group; group <= last_group; ++group) {
      const int64_t base = group * group_out_;
      const int64_t first = std::max<int64_t>(part.column_begin - base, 0) / panels_.width();
      const int64_t last = std::min(part.column_end - base, group_out_);
      for (int64_t panel = first; panels_.begin(panel) < last; ++panel) {
        const float* weights = packed + group * panels_.packed_size();
        GemmTile tile{.a_row = pixel_step_,
                      .runs = runs_.data(),
                      .run_count = static_cast<int64_t>(runs_.size()),
                      .run_length = std::min(stretch_, run_length_ - k),
                      .b = weights + panels_.offset(panel) + k * panels_.stride_of(panel),
                      .bias = weights + panels_.bias_offset(panel),
                      .goes_on = k > 0,
                      .c_row = output_.pixel(),
                      .addend_row = addend_.pixel(),
                      .columns = panels_.columns_of(panel),
                      .epilogue = last_stretch ? &convolution_.epilogue : &kNothing};
        const bool last_panel = panels_.begin(panel + 1) >= last;
        const bool within = !(last_panel && last_stretch) && !fetched && !fetches_output_;
        if (within) {
          const int64_t then = last_panel ? first : panel + 1;
          const int64_t from = last_panel ? k + stretch_ : k;
          const int64_t depth =
              stretch_ < run_length_ ? std::min(stretch_, run_length_ - from) : panels_.depth;
          tile.ahead = weights + panels_.offset(then) + from * panels_.stride_of(then);
          tile.ahead_end = tile.ahead + depth * panels_.stride_of(then);
        } else {
          next.give_to(tile);
        }
        run_lines(arguments, begin, end, group * group_in_ + k, base + panels_.begin(panel),
                  static_cast<int>(panels_.vectors_of(panel)), last_stretch, tile);
        if (!within) next.take_from(tile);
      }
    }
  }

  void run_lines(const KernelArguments& arguments, int64_t begin, int64_t end, int64_t channel,
                 int64_t column, int vectors, bool adds, GemmTile& tile) const {
    const float* input = copy_ ? reinterpret_cast<const float*>(arguments.scratch)
                               : static_cast<const float*>(arguments.operands[0]);
    float* output = static_cast<float*>(arguments.operands[output_index_]) + column;
    const float* addend =
        addend_index_ == 0 || !adds
            ? nullptr
            : static_cast<const float*>(arguments.operands[addend_index_]) + column;
    for (int64_t row = begin; row < end;) {
      const int64_t next = std::min(end, (row / line_rows_ + 1) * line_rows_);
      const int64_t image = row / output_.height();
      const int64_t y = row % output_.height();
      tile.a =
          input + channel +
          (copy_ ? window_.copied_offset(row, begin) : image * input_.strides[0] + y * row_step_);
      tile.c = output + output_.offset(image, y);
      tile.addend = addend != nullptr ? addend + addend_.offset(image, y) : nullptr;
      if (single_)
        tiles_.vectors[vectors](tile);
      else
        tiles_.run(tile, vectors, (next - row) * output_.width());
      row = next;
    }
  }

  Convolution convolution_;
  ConvolutionWindow window_;
  const GemmTiles& tiles_;
  Reading reading_;
  bool copy_;
  bool scales_weights_;
  TensorDesc input_;
  TensorDesc weight_;
  int64_t bias_stride_;
  ImageRows output_;
  ImageRows scale_;
  ImageRows addend_;
  size_t output_index_;
  size_t addend_index_ = 0;  // 0: none
  int64_t group_in_ = 0;
  int64_t group_out_ = 0;
  Panels panels_;
  std::vector<int64_t> runs_;
  int64_t run_length_ = 0;
  int64_t pixel_step_ = 0;  // between windows
  int64_t row_step_ = 0;
  int64_t copied_row_ = 0;
  int64_t line_rows_ = 1;
  int64_t block_rows_ = 1;
  int64_t stretch_ = 1;  // of input channels
  bool single_ = false;  // one pixel in all
  bool fetches_output_ = false;
};

bool can_scale(const Convolution& convolution, const ConvolutionWindow& window,
               std::span<const TensorDesc> operands) {
  const auto& input = operands[0].sizes;
  const auto& output = operands.back().sizes;
  return window.pointwise() && convolution.groups == 1 && !convolution.relu_input &&
         convolution.stride == std::array<int64_t, 2>{1, 1} &&
         convolution.padding == std::array<int64_t, 2>{0, 0} && input[2] == output[2] &&
         input[3] == output[3];
}

}  // namespace

std::vector<RankedKernel> dense_convolution_candidates(const Convolution& convolution,
                                                       std::span<const TensorDesc> operands) {
  const ConvolutionWindow window(convolution, operands);
  const ImageRows output(operands.back());
  if (!output.channels_last()) return {};
  if (convolution.epilogue.add && !ImageRows(operands[operands.size() - 2]).channels_last())
    return {};
  if (convolution.scale_input && !can_scale(convolution, window, operands)) return {};
  const GemmTiles& tiles = gemm_tiles();

  const TensorDesc& weight = operands[1];
  const int64_t columns = weight.sizes[0] / convolution.groups;
  const int64_t depth = weight.sizes[1] * weight.sizes[2] * weight.sizes[3];
  const int64_t pixels = output.height() * output.width();
  const bool may_read_in_place = convolution.scale_input
                                     ? kImagePerScaledWeights * columns <= pixels
                                     : !convolution.relu_input;
  const bool in_place = window.in_place() && may_read_in_place;
  std::vector<RankedKernel> list;
  const auto add = [&](Reading reading, int64_t lines, int64_t rows) {
    for (int64_t most = 1; most <= tiles.max_vectors; ++most) {
      const Panels panels = Panels::cut(columns, depth, tiles.lanes, most);
      if (panels.vectors != most) continue;
      double cycles = panels.estimate(tiles, lines * convolution.groups, rows);
      if (reading != Reading::kInPlace)
        cycles += kCopyCycles * static_cast<double>(lines * rows) *
                  static_cast<double>(operands[0].sizes[1] *
                                      (reading == Reading::kUnfolded ? window.kernel[1] : 1));
      const auto make = [&](bool in_stretches) {
        return std::make_shared<DenseConvolution>(convolution, operands, tiles, most, reading,
                                                  in_stretches);
      };
      const auto kernel = make(false);
      if (kernel->wants_stretches()) list.push_back({cycles * kStretchedShare, make(true)});
      list.push_back({cycles, kernel});
    }
  };
  const Reading usual = in_place ? Reading::kInPlace : Reading::kCopied;
  if (window.pointwise())
    add(usual, 1, output.batch() * pixels);
  else
    add(usual, output.batch() * output.height(), output.width());
  // Tiles may go over the end of rows that are no multiple of one.
  if (!window.pointwise() && convolution.groups == 1 && convolution.stride[0] == 1 &&
      output.height() > 1 && output.width() < kUnfoldedWidth)
    add(Reading::kUnfolded, output.batch(), pixels);
  return list;
}

}  // namespace nimble
