#include <algorithm>

#include "nimble/base/error.h"
#include "nimble/kernels/backward_weight.h"
#include "nimble/kernels/image_rows.h"
#include "nimble/kernels/outer_tile.h"

namespace nimble {
namespace {

constexpr int64_t kBlockBytes = 512 << 10;  // of both images

// Neighbouring taps that the same pixels see: where dilation is 1, their channels lie side by side.
struct Piece {
  int64_t tap = 0;  // the first of them, horizontally
  int64_t taps = 1;
  TapRange outputs;
};

// For each block of images
//   copy its input to pixels side by side, if it does not lie so
//   for each panel of output channels
//     for each row of taps: for each piece, tiles of taps and input channels
// from sums [tap][input channel][output channel] to the strides of the result
class BackwardWeightFew final : public Kernel {
 public:
  BackwardWeightFew(const ConvolutionBackwardWeight& convolution,
                    std::span<const TensorDesc> operands)
      : convolution_(convolution),
        tiles_(outer_tiles()),
        input_(operands[0]),
        output_(operands[1]),
        grad_output_(operands[1]),
        weight_(operands[2]) {
    if (convolution.bias) bias_ = operands[3];
    channels_ = weight_.sizes[1];
    copy_ = !input_.channels_last() || input_.pixel() != channels_;
    row_ = copy_ ? input_.width() * channels_ : input_.row();
    image_ = copy_ ? input_.height() * row_ : input_.image();
    const int64_t vectors = tiles_.vectors_of(weight_.sizes[0]);
    panel_ = std::min<int64_t>({vectors == 3 ? 3 : 2, vectors, tiles_.max_vectors}) * tiles_.lanes;
    const int64_t image_bytes =
        4 * (image_ + grad_output_.height() * grad_output_.width() * grad_output_.channels());
    block_ = std::clamp<int64_t>(kBlockBytes / std::max<int64_t>(image_bytes, 1), 1,
                                 std::max<int64_t>(grad_output_.batch(), 1));
    plan_pieces();
  }

  std::string name() const override {
    return message("backward_weight few ", tiles_.max_rows[panel_ / tiles_.lanes], "x", panel_,
                   copy_ ? " copy" : "");
  }

  Work work() const override { return {weight_.sizes[0], panel_, channels_, 0}; }

  size_t scratch_bytes(const Part& part) const override {
    const int64_t sums = weight_.numel() / weight_.sizes[0] * width_of(part);
    return runs_bytes() + static_cast<size_t>(sums + (copy_ ? block_ * image_ : 0)) * sizeof(float);
  }

  void run(const KernelArguments& arguments) const override {
    const Part& part = arguments.part;
    const int64_t width = width_of(part);
    auto* sums = reinterpret_cast<float*>(arguments.scratch + runs_bytes());
    float* copied = sums + weight_.numel() / weight_.sizes[0] * width;
    const auto* input = static_cast<const float*>(arguments.operands[0]);
    if (convolution_.bias)
      sum_bias(output_, static_cast<const float*>(arguments.operands[1]), part.row_begin,
               part.row_end, bias_, static_cast<float*>(arguments.operands[3]), sums);
    std::fill(sums, copied, 0.0F);
    const int64_t batch = grad_output_.batch();
    for (int64_t image = 0; image < batch; image += block_) {
      const int64_t end = std::min(image + block_, batch);
      if (copy_) copy_images(input, image, end, copied);
      run_block(arguments, copy_ ? copied : input + image * image_, image, end, sums, width);
    }
    put(sums, width, part, static_cast<float*>(arguments.operands[2]));
  }

 private:
  int64_t width_of(const Part& part) const {
    return (part.row_end - part.row_begin + tiles_.lanes - 1) / tiles_.lanes * tiles_.lanes;
  }
  size_t runs_bytes() const {
    const int64_t rows = block_ * grad_output_.height();
    return (static_cast<size_t>(rows) * sizeof(PixelRun) + 63) / 64 * 64;
  }

  void plan_pieces() {
    const auto outputs = [&](int64_t tap) {
      return outputs_of_tap(tap, convolution_.stride[1], convolution_.padding[1],
                            convolution_.dilation[1], input_.width(), grad_output_.width());
    };
    const int64_t width = weight_.sizes[3];
    if (convolution_.dilation[1] != 1) {
      for (int64_t tap = 0; tap < width; ++tap) pieces_.push_back({tap, 1, outputs(tap)});
      return;
    }
    for (int64_t x = 0; x < grad_output_.width(); ++x) {
      Piece piece{.tap = 0, .taps = 0, .outputs = {x, x + 1}};
      for (int64_t tap = 0; tap < width; ++tap) {
        const TapRange range = outputs(tap);
        if (x < range.begin || x >= range.end) continue;
        if (piece.taps++ == 0) piece.tap = tap;
      }
      if (piece.taps == 0) continue;
      Piece* last = pieces_.empty() ? nullptr : &pieces_.back();
      if (last != nullptr && last->tap == piece.tap && last->taps == piece.taps &&
          last->outputs.end == x)
        ++last->outputs.end;
      else
        pieces_.push_back(piece);
    }
  }

  void copy_images(const float* from, int64_t begin, int64_t end, float* to) const {
    const int64_t width = input_.width();
    for (int64_t n = begin; n < end; ++n)
      for (int64_t y = 0; y < input_.height(); ++y, to += row_)
        for (int64_t c = 0; c < channels_; ++c) {
          const float* row = from + input_.offset(n, y) + c * input_.channel();
          for (int64_t x = 0; x < width; ++x) to[x * channels_ + c] = row[x * input_.pixel()];
        }
  }

  // `input` is the first of these images.
  void run_block(const KernelArguments& arguments, const float* input, int64_t begin, int64_t end,
                 float* sums, int64_t width) const {
    const Part& part = arguments.part;
    auto* runs = reinterpret_cast<PixelRun*>(arguments.scratch);
    const auto* grad_output = static_cast<const float*>(arguments.operands[1]);
    for (int64_t ky = 0; ky < weight_.sizes[2]; ++ky)
      for (const Piece& piece : pieces_) {
        OuterTile tile{.a = input,
                       .a_step = convolution_.stride[1] * channels_,
                       .b_step = grad_output_.pixel(),
                       .runs = runs,
                       .run_count = find_runs(begin, end, ky, piece, runs),
                       .c_row = width,
                       .goes_on = true};
        const int64_t first = (ky * weight_.sizes[3] + piece.tap) * channels_;
        for (int64_t o = part.row_begin; o < part.row_end; o += panel_) {
          tile.b = grad_output + o;
          tile.c = sums + first * width + o - part.row_begin;
          tile.columns = std::min(panel_, part.row_end - o);
          tiles_.run(tile, piece.taps * channels_);
        }
      }
  }

  int64_t find_runs(int64_t begin, int64_t end, int64_t ky, const Piece& piece,
                    PixelRun* to) const {
    const auto& [stride, padding, dilation, groups, bias] = convolution_;
    const TapRange rows = outputs_of_tap(ky, stride[0], padding[0], dilation[0], input_.height(),
                                         grad_output_.height());
    const int64_t x = piece.outputs.begin;
    const int64_t left = x * stride[1] - padding[1] + piece.tap * dilation[1];
    PixelRun* const first = to;
    for (int64_t n = begin; n < end; ++n)
      for (int64_t y = rows.begin; y < rows.end; ++y) {
        const int64_t top = y * stride[0] - padding[0] + ky * dilation[0];
        *to++ = {(n - begin) * image_ + top * row_ + left * channels_,
                 grad_output_.offset(n, y) + x * grad_output_.pixel(), piece.outputs.end - x};
      }
    return to - first;
  }

  void put(const float* sums, int64_t width, const Part& part, float* result) const {
    const auto& s = weight_.strides;
    for (int64_t ky = 0; ky < weight_.sizes[2]; ++ky)
      for (int64_t kx = 0; kx < weight_.sizes[3]; ++kx)
        for (int64_t i = 0; i < channels_; ++i, sums += width)
          for (int64_t o = part.row_begin; o < part.row_end; ++o)
            result[o * s[0] + i * s[1] + ky * s[2] + kx * s[3]] = sums[o - part.row_begin];
  }

  ConvolutionBackwardWeight convolution_;
  const OuterTiles& tiles_;
  ImageRows input_;
  TensorDesc output_;
  ImageRows grad_output_;
  TensorDesc weight_;
  TensorDesc bias_;
  int64_t channels_ = 0;  // of the input
  bool copy_ = false;
  int64_t row_ = 0;  // of the input or its copy
  int64_t image_ = 0;
  int64_t panel_ = 0;  // output channels
  int64_t block_ = 1;  // images
  std::vector<Piece> pieces_;
};

}  // namespace

KernelPtr make_backward_weight_few(const ConvolutionBackwardWeight& convolution,
                                   std::span<const TensorDesc> operands) {
  return std::make_shared<BackwardWeightFew>(convolution, operands);
}

}  // namespace nimble
