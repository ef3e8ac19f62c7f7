#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/convolution_backward_cases.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

void convolution_backward_weight_reference(const ConvolutionBackwardWeight& convolution,
                                           std::span<const TensorDesc> operands,
                                           void* const* data) {
  const TensorDesc& input = operands[0];
  const TensorDesc& output = operands[1];
  const TensorDesc& weight = operands[2];
  const auto* values = static_cast<const float*>(data[0]);
  const auto* grad_output = static_cast<const float*>(data[1]);
  auto* grad_weight = static_cast<float*>(data[2]);
  const int64_t group_in = weight.sizes[1];
  const int64_t group_out = std::max<int64_t>(weight.sizes[0] / convolution.groups, 1);
  // Calls visit(n, y, x, gradient) for every pixel of an output channel's gradient.
  const auto for_each_pixel = [&](int64_t channel, const auto& visit) {
    const auto& os = output.strides;
    for (int64_t n = 0; n < output.sizes[0]; ++n)
      for (int64_t y = 0; y < output.sizes[2]; ++y)
        for (int64_t x = 0; x < output.sizes[3]; ++x)
          visit(n, y, x, grad_output[n * os[0] + channel * os[1] + y * os[2] + x * os[3]]);
  };
  const auto& is = input.strides;
  for_each_index(weight.sizes, [&](const std::vector<int64_t>& at) {
    double sum = 0;
    const int64_t channel = at[0] / group_out * group_in + at[1];
    for_each_pixel(at[0], [&](int64_t n, int64_t y, int64_t x, float gradient) {
      const int64_t iy =
          y * convolution.stride[0] - convolution.padding[0] + at[2] * convolution.dilation[0];
      const int64_t ix =
          x * convolution.stride[1] - convolution.padding[1] + at[3] * convolution.dilation[1];
      if (iy < 0 || ix < 0 || iy >= input.sizes[2] || ix >= input.sizes[3]) return;
      sum += static_cast<double>(gradient) *
             values[n * is[0] + channel * is[1] + iy * is[2] + ix * is[3]];
    });
    grad_weight[place(weight, at)] = static_cast<float>(sum);
  });
  if (!convolution.bias) return;
  for (int64_t o = 0; o < weight.sizes[0]; ++o) {
    double sum = 0;
    for_each_pixel(o, [&](int64_t, int64_t, int64_t, float gradient) { sum += gradient; });
    static_cast<float*>(data[3])[o * operands[3].strides[0]] = static_cast<float>(sum);
  }
}

namespace {

std::vector<KernelCase> make_cases(const std::vector<cases::BackwardCase>& convolutions) {
  std::vector<KernelCase> list;
  for (const auto& [convolution, input, weight, output] : convolutions) {
    list.push_back({ConvolutionBackwardWeight{.stride = convolution.stride,
                                              .padding = convolution.padding,
                                              .dilation = convolution.dilation,
                                              .groups = convolution.groups,
                                              .bias = convolution.bias},
                    {input, output, weight}});
    if (convolution.bias) list.back().operands.push_back(cases::dense({weight.sizes[0]}));
  }
  return list;
}

}  // namespace

std::vector<KernelCase> convolution_backward_weight_test_cases() {
  return make_cases(cases::backward_test_cases());
}
std::vector<KernelCase> convolution_backward_weight_bench_cases() {
  return make_cases(cases::backward_bench_cases());
}

}  // namespace nimble
