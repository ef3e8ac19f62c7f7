#include "nimble/kernels/family.h"

namespace nimble {
namespace {

double convolution_flops(const TensorDesc& weight, const TensorDesc& output) {
  const double per_output =
      static_cast<double>(weight.sizes[1] * weight.sizes[2] * weight.sizes[3]);
  return 2 * per_output * static_cast<double>(output.numel());
}

}  // namespace

double flops(const OpAttributes& attributes, std::span<const TensorDesc> operands) {
  const TensorDesc& output = operands.back();
  if (std::holds_alternative<ConvolutionBackwardInput>(attributes))
    return convolution_flops(operands[1], operands[0]);
  if (std::holds_alternative<ConvolutionBackwardWeight>(attributes))
    return convolution_flops(operands[2], operands[1]);
  if (std::holds_alternative<Convolution>(attributes))
    return convolution_flops(operands[1], output);
  if (const auto* both = std::get_if<SeparableConvolution>(&attributes)) {
    const TensorDesc& pointwise = operands[both->depthwise.bias ? 3 : 2];
    const double pixels =
        static_cast<double>(output.numel()) / static_cast<double>(output.sizes[1]);
    const double depthwise = 2 * pixels * static_cast<double>(operands[1].numel());
    return depthwise + convolution_flops(pointwise, output);
  }
  if (std::holds_alternative<MatMul>(attributes))
    return 2 * static_cast<double>(output.numel()) * static_cast<double>(operands[0].sizes.back());
  if (std::holds_alternative<Attention>(attributes)) {
    const auto& q = operands[0].sizes;
    const double pairs = static_cast<double>(q[0] * q[1] * q[2] * operands[1].sizes[2]);
    return 2 * pairs * static_cast<double>(q[3] + operands[2].sizes[3]);
  }
  return 0;
}

}  // namespace nimble
