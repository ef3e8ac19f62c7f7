#include <algorithm>

#include "nimble/kernels/backward_weight.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/image_rows.h"
#include "nimble/kernels/outer_tile.h"

namespace nimble {
namespace {

constexpr int64_t kFewChannels = 8;
constexpr int64_t kSummedTogether = 64;  // pixels; sums of sums round less

}  // namespace

TapRange outputs_of_tap(int64_t tap, int64_t stride, int64_t padding, int64_t dilation,
                        int64_t input_size, int64_t output_size) {
  const int64_t first = tap * dilation - padding;  // what output 0 reads
  const int64_t begin = first >= 0 ? 0 : (-first + stride - 1) / stride;
  const int64_t end = first >= input_size ? 0 : (input_size - 1 - first) / stride + 1;
  TapRange range = {std::min(begin, output_size), std::min(end, output_size)};
  if (range.begin >= range.end) range = {};
  return range;
}

void sum_bias(const TensorDesc& grad_output, const float* from, int64_t begin, int64_t end,
              const TensorDesc& grad_bias, float* to, float* scratch) {
  const ImageRows rows(grad_output);
  const OuterTiles& tiles = outer_tiles();
  std::fill(scratch, scratch + (end - begin), 0.0F);
  const auto add = [&](const float* first, int64_t pixels) {
    for (int64_t p = 0; p < pixels; p += kSummedTogether)
      tiles.sum_pixels(first + p * rows.pixel() + begin, rows.pixel(),
                       std::min(kSummedTogether, pixels - p), end - begin, scratch);
  };
  if (rows.images_follow()) {
    add(from, rows.batch() * rows.height() * rows.width());
  } else {
    for (int64_t n = 0; n < rows.batch(); ++n)
      for (int64_t y = 0; y < rows.height(); ++y) add(from + rows.offset(n, y), rows.width());
  }
  for (int64_t o = begin; o < end; ++o) to[o * grad_bias.strides[0]] = scratch[o - begin];
}

std::vector<KernelPtr> convolution_backward_weight_candidates(
    const ConvolutionBackwardWeight& convolution, std::span<const TensorDesc> operands) {
  const auto& weight = operands[2].sizes;
  const bool channels_last = ImageRows(operands[0]).channels_last();
  if (operands[2].numel() == 0 || !ImageRows(operands[1]).channels_last()) return {};
  if (channels_last && weight[1] == 1 && weight[0] == convolution.groups)
    return {make_backward_weight_depthwise(convolution, operands)};
  std::vector<KernelPtr> list;
  if (convolution.groups == 1 && (!channels_last || weight[1] <= kFewChannels))
    list.push_back(make_backward_weight_few(convolution, operands));
  else if (channels_last)
    list.push_back(make_backward_weight(convolution, operands));
  return list;
}

}  // namespace nimble
