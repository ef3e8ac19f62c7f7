#pragma once

#include "nimble/kernels/kernel.h"

namespace nimble {

// The kernels of the family, by the kind of convolution; null: not for these tensors.

// Products of channels that lie side by side in both images; any groups.
KernelPtr make_backward_weight(const ConvolutionBackwardWeight& convolution,
                               std::span<const TensorDesc> operands);
// For inputs of few channels, or in any strides: the pixels of a window's row are taken together.
KernelPtr make_backward_weight_few(const ConvolutionBackwardWeight& convolution,
                                   std::span<const TensorDesc> operands);
// Groups of one channel each.
KernelPtr make_backward_weight_depthwise(const ConvolutionBackwardWeight& convolution,
                                         std::span<const TensorDesc> operands);

// The indices of an output dim at which a tap reads inside of the input.
struct TapRange {
  int64_t begin = 0;
  int64_t end = 0;
};
TapRange outputs_of_tap(int64_t tap, int64_t stride, int64_t padding, int64_t dilation,
                        int64_t input_size, int64_t output_size);

// Writes the gradient of the bias for output channels [begin, end).
void sum_bias(const TensorDesc& grad_output, const float* from, int64_t begin, int64_t end,
              const TensorDesc& grad_bias, float* to, float* scratch);

}  // namespace nimble
