#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "nimble/base/op_attributes.h"
#include "nimble/base/tensor_desc.h"

namespace nimble {

// An image tensor [N, C, H, W] as rows of pixels. Strides of dims of size 1 mean nothing and are
// replaced by what makes the tensor look dense.
class ImageRows {
 public:
  ImageRows() = default;
  explicit ImageRows(const TensorDesc& desc);

  int64_t batch() const { return sizes_[0]; }
  int64_t channels() const { return sizes_[1]; }
  int64_t height() const { return sizes_[2]; }
  int64_t width() const { return sizes_[3]; }
  int64_t numel() const { return batch() * channels() * height() * width(); }
  // In elements, between neighbours.
  int64_t channel() const { return channel_; }
  int64_t pixel() const { return pixel_; }
  int64_t row() const { return row_; }
  int64_t image() const { return image_; }
  int64_t offset(int64_t image, int64_t y) const { return image * image_ + y * row_; }

  bool channels_last() const { return channel_ == 1; }
  // Whether the next row, or the next image, continues at the same distance of pixels.
  bool rows_follow() const { return row_ == width() * pixel_; }
  bool images_follow() const { return rows_follow() && image_ == height() * row_; }

 private:
  std::array<int64_t, 4> sizes_ = {};
  int64_t channel_ = 1;
  int64_t pixel_ = 0;
  int64_t row_ = 0;
  int64_t image_ = 0;
};

// The part of an image under the windows of a convolution, and the padded, dense copy of it.
struct ConvolutionWindow {
  ConvolutionWindow(const Convolution& convolution, std::span<const TensorDesc> operands,
                    bool unfold = false);

  std::array<int64_t, 2> kernel;

  bool pointwise() const { return kernel[0] == 1 && kernel[1] == 1; }
  // Whether windows can be read where they are: channels last, and none sticks out.
  bool in_place() const { return in_place_; }
  // Input rows and columns of one window.
  std::array<int64_t, 2> reach() const { return reach_; }

  // The copy: for each image in a range of output rows, the input rows under them, of as many
  // pixels as there are under an output row; pixels dense. For 1x1, only pixels that count.
  // Unfolded: for each window, the pixels of its row.
  int64_t copied_row() const { return copied_width_ * input_.channels(); }
  int64_t copied_rows(int64_t rows_of_image) const {
    return (rows_of_image - 1) * copied_step_ + reach_[0];
  }
  int64_t copied_rows_bound(int64_t rows) const;
  void copy_rows(const float* input, int64_t begin, int64_t end, float* to, bool relu) const;
  // The same for a 1x1 convolution that reads every pixel, times one factor per image and channel.
  void copy_scaled_rows(const float* input, const ImageRows& scale, const float* factors,
                        int64_t begin, int64_t end, float* to) const;
  // Of the first window of output row `row`, in a copy that begins with output row `begin`.
  int64_t copied_offset(int64_t row, int64_t begin) const;

 private:
  void copy_row(const float* input, int64_t image, int64_t y, float* to) const;
  void unfold_row(const float* input, int64_t image, int64_t y, float* to) const;

  ImageRows input_;
  int64_t output_height_;
  std::array<int64_t, 2> stride_;
  std::array<int64_t, 2> padding_;
  std::array<int64_t, 2> reach_;
  int64_t copied_width_;
  int64_t copied_step_;  // copied rows from one output row to the next
  int64_t output_width_;
  int64_t dilation_;  // horizontal
  bool unfold_;
  bool in_place_;
};

}  // namespace nimble
