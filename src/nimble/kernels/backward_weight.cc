#include "nimble/kernels/backward_weight.h"

#include <algorithm>
#include <cstring>

#include "nimble/base/error.h"
#include "nimble/kernels/image_rows.h"
#include "nimble/kernels/outer_tile.h"

namespace nimble {
namespace {

// Of both images: the pixels of a block stay in a second-level cache for all tiles.
constexpr int64_t kBlockBytes = 512 << 10;
constexpr int64_t kShortRow = 8;  // pixels

// How pixels are put into runs: all in one, a row in one, or the same pixel of all images.
enum class Runs { kFlat, kRows, kImages };
constexpr const char* kRunsNames[] = {"", " by rows", " by images"};

// For each panel of input channels
//   for each block of pixels
//     for each tap: the pixels that see it, and tiles of output channels
//   from sums [output channel][tap][panel] to the strides of the result, if they differ
class BackwardWeight final : public Kernel {
 public:
  BackwardWeight(const ConvolutionBackwardWeight& convolution, std::span<const TensorDesc> operands)
      : convolution_(convolution),
        tiles_(outer_tiles()),
        input_(operands[0]),
        output_(operands[1]),
        grad_output_(operands[1]),
        weight_(operands[2]) {
    if (convolution.bias) bias_ = operands[3];
    group_in_ = weight_.sizes[1];
    group_out_ = weight_.sizes[0] / convolution.groups;
    taps_ = weight_.sizes[2] * weight_.sizes[3];
    const int64_t vectors = tiles_.vectors_of(group_in_);
    panel_ =
        std::min<int64_t>(vectors == 3 ? 3 : 2, std::min<int64_t>(vectors, tiles_.max_vectors));
    panel_ *= tiles_.lanes;
    direct_ = weight_.strides[1] == 1 || group_in_ == 1;
    plan_runs();
  }

  std::string name() const override {
    const int64_t vectors = panel_ / tiles_.lanes;
    return message("backward_weight ", tiles_.max_rows[vectors], "x", panel_,
                   kRunsNames[static_cast<size_t>(runs_)]);
  }

  Work work() const override {
    return {weight_.sizes[0], std::min(kRowGrain, weight_.sizes[0]), group_in_, panel_};
  }

  size_t scratch_bytes(const Part& part) const override {
    return runs_bytes() + static_cast<size_t>(sum_floats(part)) * sizeof(float);
  }

  void run(const KernelArguments& arguments) const override {
    const Part& part = arguments.part;
    auto* sums = reinterpret_cast<float*>(arguments.scratch + runs_bytes());
    if (convolution_.bias && part.column_begin == 0)
      sum_bias(output_, static_cast<const float*>(arguments.operands[1]), part.row_begin,
               part.row_end, bias_, static_cast<float*>(arguments.operands[3]), sums);
    for (int64_t group = part.row_begin / group_out_; group * group_out_ < part.row_end; ++group)
      for (int64_t column = part.column_begin; column < part.column_end; column += panel_)
        run_panel(arguments, group, column, std::min(column + panel_, part.column_end), sums);
  }

 private:
  static constexpr int64_t kRowGrain = 8;

  size_t runs_bytes() const {
    const int64_t most = runs_ == Runs::kFlat   ? 1
                         : runs_ == Runs::kRows ? block_
                                                : grad_output_.height() * grad_output_.width();
    return (static_cast<size_t>(most) * sizeof(PixelRun) + 63) / 64 * 64;
  }
  int64_t sum_floats(const Part& part) const {
    const int64_t rows = part.row_end - part.row_begin;
    return std::max(direct_ ? 0 : rows * taps_ * panel_, convolution_.bias ? rows : 0);
  }

  void plan_runs() {
    const auto& c = convolution_;
    const bool pointwise = taps_ == 1 && c.stride[0] * c.stride[1] == 1 && c.padding[0] == 0 &&
                           c.padding[1] == 0 && input_.height() == grad_output_.height() &&
                           input_.width() == grad_output_.width();
    const int64_t pixels = grad_output_.height() * grad_output_.width();
    const int64_t image_bytes = 4 * (pixels * grad_output_.channels() +
                                     input_.height() * input_.width() * input_.channels());
    if (pointwise && input_.images_follow() && grad_output_.images_follow()) {
      runs_ = Runs::kFlat;
      units_ = grad_output_.batch() * pixels;
      block_ =
          kBlockBytes / std::max<int64_t>(4 * (input_.channels() + grad_output_.channels()), 1);
      a_step_ = grad_output_.pixel();
      b_step_ = input_.pixel();
    } else if (grad_output_.width() <= kShortRow &&
               grad_output_.batch() >= 2 * grad_output_.width()) {
      runs_ = Runs::kImages;
      units_ = grad_output_.batch();
      block_ = std::max(kBlockBytes / std::max<int64_t>(image_bytes, 1), 2 * kShortRow);
      a_step_ = grad_output_.image();
      b_step_ = input_.image();
    } else {
      runs_ = Runs::kRows;
      units_ = grad_output_.batch() * grad_output_.height();
      const int64_t height = std::max<int64_t>(grad_output_.height(), 1);
      block_ = kBlockBytes / std::max<int64_t>(image_bytes / height, 1);
      a_step_ = grad_output_.pixel();
      b_step_ = input_.pixel() * c.stride[1];
    }
    // Blocks of about the same size.
    block_ = std::clamp<int64_t>(block_, 1, std::max<int64_t>(units_, 1));
    const int64_t blocks = std::max<int64_t>((units_ + block_ - 1) / block_, 1);
    block_ = std::max<int64_t>((units_ + blocks - 1) / blocks, 1);
  }

  TapRange outputs_of(size_t d, int64_t tap) const {
    return outputs_of_tap(tap, convolution_.stride[d], convolution_.padding[d],
                          convolution_.dilation[d], d == 0 ? input_.height() : input_.width(),
                          d == 0 ? grad_output_.height() : grad_output_.width());
  }

  // The runs of units [begin, end) for a tap.
  int64_t find_runs(int64_t begin, int64_t end, int64_t ky, int64_t kx, PixelRun* to) const {
    if (begin >= end) return 0;
    if (runs_ == Runs::kFlat) {
      *to = {begin * a_step_, begin * b_step_, end - begin};
      return 1;
    }
    const TapRange rows = outputs_of(0, ky);
    const TapRange columns = outputs_of(1, kx);
    if (columns.begin >= columns.end) return 0;
    const auto& stride = convolution_.stride;
    const int64_t top = ky * convolution_.dilation[0] - convolution_.padding[0];
    const int64_t left = kx * convolution_.dilation[1] - convolution_.padding[1];
    const auto at = [&](int64_t image, int64_t y, int64_t x) {
      return PixelRun{
          grad_output_.offset(image, y) + x * grad_output_.pixel(),
          input_.offset(image, y * stride[0] + top) + (x * stride[1] + left) * input_.pixel(), 0};
    };
    PixelRun* const first = to;
    if (runs_ == Runs::kImages) {
      for (int64_t y = rows.begin; y < rows.end; ++y)
        for (int64_t x = columns.begin; x < columns.end; ++x) {
          *to = at(begin, y, x);
          to++->count = end - begin;
        }
    } else {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t y = row % grad_output_.height();
        if (y < rows.begin || y >= rows.end) continue;
        *to = at(row / grad_output_.height(), y, columns.begin);
        to++->count = columns.end - columns.begin;
      }
    }
    return to - first;
  }

  void run_panel(const KernelArguments& arguments, int64_t group, int64_t column,
                 int64_t column_end, float* sums) const {
    const Part& part = arguments.part;
    const int64_t begin = std::max(part.row_begin, group * group_out_);
    const int64_t end = std::min(part.row_end, (group + 1) * group_out_);
    auto* runs = reinterpret_cast<PixelRun*>(arguments.scratch);
    auto* result = static_cast<float*>(arguments.operands[2]);
    const auto& s = weight_.strides;
    OuterTile tile{
        .a = static_cast<const float*>(arguments.operands[1]) + begin,
        .a_step = a_step_,
        .b = static_cast<const float*>(arguments.operands[0]) + group * group_in_ + column,
        .b_step = b_step_,
        .runs = runs,
        .c_row = direct_ ? s[0] : taps_ * panel_,
        .columns = column_end - column};
    for (int64_t unit = 0; unit == 0 || unit < units_; unit += block_) {
      tile.goes_on = unit > 0;
      for (int64_t ky = 0; ky < weight_.sizes[2]; ++ky)
        for (int64_t kx = 0; kx < weight_.sizes[3]; ++kx) {
          tile.run_count = find_runs(unit, std::min(unit + block_, units_), ky, kx, runs);
          if (tile.goes_on && tile.run_count == 0) continue;
          tile.c = direct_ ? result + begin * s[0] + column * s[1] + ky * s[2] + kx * s[3]
                           : sums + (ky * weight_.sizes[3] + kx) * panel_;
          tiles_.run(tile, end - begin);
        }
    }
    if (!direct_) put(sums, begin, end, column, column_end, result);
  }

  void put(const float* sums, int64_t begin, int64_t end, int64_t column, int64_t column_end,
           float* result) const {
    const auto& s = weight_.strides;
    const int64_t width = weight_.sizes[3];
    const bool taps_together = s[3] == 1 && s[2] == width && s[1] == taps_;
    const GemmTiles& gemm = gemm_tiles();
    for (int64_t o = begin; o < end; ++o, sums += taps_ * panel_) {
      float* to = result + o * s[0] + column * s[1];
      if (taps_together) {
        gemm.transpose(sums, panel_, taps_, column_end - column, 1, to, taps_);
        continue;
      }
      for (int64_t tap = 0; tap < taps_; ++tap)
        for (int64_t i = 0; i < column_end - column; ++i)
          to[i * s[1] + tap / width * s[2] + tap % width * s[3]] = sums[tap * panel_ + i];
    }
  }

  ConvolutionBackwardWeight convolution_;
  const OuterTiles& tiles_;
  ImageRows input_;
  TensorDesc output_;
  ImageRows grad_output_;
  TensorDesc weight_;
  TensorDesc bias_;
  int64_t group_in_ = 0;
  int64_t group_out_ = 0;
  int64_t taps_ = 0;
  int64_t panel_ = 0;    // input channels
  bool direct_ = false;  // tiles write the result where it belongs
  Runs runs_ = Runs::kFlat;
  int64_t units_ = 0;  // pixels, rows or images, by the kind of run
  int64_t block_ = 1;  // of those
  int64_t a_step_ = 0;
  int64_t b_step_ = 0;
};

}  // namespace

KernelPtr make_backward_weight(const ConvolutionBackwardWeight& convolution,
                               std::span<const TensorDesc> operands) {
  return std::make_shared<BackwardWeight>(convolution, operands);
}

}  // namespace nimble
