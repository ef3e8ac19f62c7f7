#include "nimble/kernels/image_rows.h"

#include <algorithm>
#include <cstring>

#include "nimble/kernels/scale_pixels.h"

namespace nimble {

ImageRows::ImageRows(const TensorDesc& desc) {
  std::copy(desc.sizes.begin(), desc.sizes.end(), sizes_.begin());
  const auto& s = desc.strides;
  channel_ = channels() == 1 ? 1 : s[1];
  pixel_ = width() > 1 ? s[3] : height() > 1 ? s[2] : batch() > 1 ? s[0] : channels() * channel_;
  row_ = height() > 1 ? s[2] : width() * pixel_;
  image_ = batch() > 1 ? s[0] : height() * row_;
}

ConvolutionWindow::ConvolutionWindow(const Convolution& convolution,
                                     std::span<const TensorDesc> operands, bool unfold)
    : kernel{operands[1].sizes[2], operands[1].sizes[3]},
      input_(operands[0]),
      output_height_(std::max<int64_t>(operands.back().sizes[2], 1)),
      stride_(convolution.stride),
      padding_(convolution.padding),
      output_width_(operands.back().sizes[3]),
      dilation_(convolution.dilation[1]),
      unfold_(unfold) {
  const auto& output = operands.back().sizes;
  const std::array<int64_t, 2> size = {input_.height(), input_.width()};
  in_place_ = input_.channels_last();
  std::array<int64_t, 2> extent;
  for (size_t d = 0; d < 2; ++d) {
    reach_[d] = convolution.dilation[d] * (kernel[d] - 1) + 1;
    extent[d] = std::max<int64_t>(output[d + 2] - 1, 0) * stride_[d] + reach_[d];
    in_place_ = in_place_ && padding_[d] == 0 && extent[d] <= size[d];
  }
  copied_width_ = pointwise() ? output[3] : unfold ? output[3] * kernel[1] : extent[1];
  copied_step_ = pointwise() ? 1 : stride_[0];
}

int64_t ConvolutionWindow::copied_rows_bound(int64_t rows) const {
  // A range of rows is the end of one image, whole images, and the begin of one.
  const int64_t images = std::min(std::max<int64_t>(input_.batch(), 1),
                                  (rows + output_height_ - 2) / output_height_ + 1);
  return rows * copied_step_ + images * std::max<int64_t>(reach_[0] - copied_step_, 0);
}

int64_t ConvolutionWindow::copied_offset(int64_t row, int64_t begin) const {
  const int64_t first_image = begin / output_height_;
  const int64_t image = row / output_height_;
  if (image == first_image) return (row - begin) * copied_step_ * copied_row();
  const int64_t first_rows = copied_rows((first_image + 1) * output_height_ - begin);
  const int64_t rows = first_rows + (image - first_image - 1) * copied_rows(output_height_) +
                       row % output_height_ * copied_step_;
  return rows * copied_row();
}

void ConvolutionWindow::copy_rows(const float* input, int64_t begin, int64_t end, float* to,
                                  bool relu) const {
  float* const first = to;
  for (int64_t row = begin; row < end;) {
    const int64_t image = row / output_height_;
    const int64_t next = std::min(end, (image + 1) * output_height_);
    const int64_t top = row % output_height_ * stride_[0] - padding_[0];
    const int64_t count = copied_rows(next - row);
    const int64_t step = pointwise() ? stride_[0] : 1;
    for (int64_t y = 0; y < count; ++y, to += copied_row()) {
      if (unfold_)
        unfold_row(input, image, top + y, to);
      else
        copy_row(input, image, top + y * step, to);
    }
    row = next;
  }
  if (relu)
    for (float* p = first; p < to; ++p) *p = *p < 0 ? 0 : *p;
}

void ConvolutionWindow::copy_scaled_rows(const float* input, const ImageRows& scale,
                                         const float* factors, int64_t begin, int64_t end,
                                         float* to) const {
  ScaledPixels pixels{.from = nullptr,
                      .from_pixel = input_.pixel(),
                      .from_channel = input_.channel(),
                      .factors = nullptr,
                      .factor_stride = scale.channel(),
                      .to = to,
                      .pixels = input_.width(),
                      .channels = input_.channels()};
  for (int64_t row = begin; row < end; ++row, pixels.to += copied_row()) {
    const int64_t image = row / output_height_;
    pixels.from = input + input_.offset(image, row % output_height_);
    pixels.factors = factors + scale.offset(image, 0);
    scale_pixels(pixels);
  }
}

void ConvolutionWindow::copy_row(const float* input, int64_t image, int64_t y, float* to) const {
  const int64_t channels = input_.channels();
  if (y < 0 || y >= input_.height()) {
    std::memset(to, 0, static_cast<size_t>(copied_row()) * sizeof(float));
    return;
  }
  // The copied pixels [left, right) lie in the image.
  const int64_t step = pointwise() ? stride_[1] : 1;
  const int64_t left = std::min((padding_[1] + step - 1) / step, copied_width_);
  const int64_t inside = input_.width() + padding_[1];
  const int64_t right = std::clamp((inside + step - 1) / step, left, copied_width_);
  const int64_t pixel = input_.pixel() * step;
  const float* from =
      input + input_.offset(image, y) + (left * step - padding_[1]) * input_.pixel();
  std::memset(to, 0, static_cast<size_t>(left * channels) * sizeof(float));
  std::memset(to + right * channels, 0,
              static_cast<size_t>((copied_width_ - right) * channels) * sizeof(float));
  to += left * channels;
  const int64_t count = right - left;
  const int64_t channel = input_.channel();
  if (channel == 1 && pixel == channels) {
    std::memcpy(to, from, static_cast<size_t>(count * channels) * sizeof(float));
  } else if (channel == 1) {
    for (int64_t x = 0; x < count; ++x, to += channels, from += pixel)
      std::memcpy(to, from, static_cast<size_t>(channels) * sizeof(float));
  } else if (channels == 3) {
    for (int64_t x = 0; x < count; ++x, to += 3, from += pixel) {
      to[0] = from[0];
      to[1] = from[channel];
      to[2] = from[2 * channel];
    }
  } else {
    for (int64_t x = 0; x < count; ++x)
      for (int64_t c = 0; c < channels; ++c) to[x * channels + c] = from[x * pixel + c * channel];
  }
}

void ConvolutionWindow::unfold_row(const float* input, int64_t image, int64_t y, float* to) const {
  const int64_t channels = input_.channels();
  if (y < 0 || y >= input_.height()) {
    std::memset(to, 0, static_cast<size_t>(copied_row()) * sizeof(float));
    return;
  }
  const float* row = input + input_.offset(image, y);
  const bool dense = input_.channels_last() && input_.pixel() == channels && dilation_ == 1;
  for (int64_t x = 0; x < output_width_; ++x) {
    const int64_t left = x * stride_[1] - padding_[1];
    if (dense && left >= 0 && left + kernel[1] <= input_.width()) {
      const int64_t count = kernel[1] * channels;
      std::memcpy(to, row + left * channels, static_cast<size_t>(count) * sizeof(float));
      to += count;
      continue;
    }
    for (int64_t k = 0; k < kernel[1]; ++k, to += channels) {
      const int64_t from = left + k * dilation_;
      if (from < 0 || from >= input_.width())
        std::fill(to, to + channels, 0.0F);
      else
        for (int64_t c = 0; c < channels; ++c)
          to[c] = row[from * input_.pixel() + c * input_.channel()];
    }
  }
}

}  // namespace nimble
