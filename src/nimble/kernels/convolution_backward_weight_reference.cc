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
  const std::vector<int64_t> pixels = {output.sizes[0], output.sizes[2], output.sizes[3]};
  for_each_index(weight.sizes, [&](const std::vector<int64_t>& at) {
    double sum = 0;
    for_each_index(pixels, [&](const std::vector<int64_t>& pixel) {
      std::vector<int64_t> from = {pixel[0], at[0] / group_out * group_in + at[1], 0, 0};
      for (size_t d : {0, 1}) {
        from[d + 2] = pixel[d + 1] * convolution.stride[d] - convolution.padding[d] +
                      at[d + 2] * convolution.dilation[d];
        if (from[d + 2] < 0 || from[d + 2] >= input.sizes[d + 2]) return;
      }
      sum += static_cast<double>(values[place(input, from)]) *
             grad_output[place(output, {pixel[0], at[0], pixel[1], pixel[2]})];
    });
    grad_weight[place(weight, at)] = static_cast<float>(sum);
  });
  if (!convolution.bias) return;
  for (int64_t o = 0; o < weight.sizes[0]; ++o) {
    double sum = 0;
    for_each_index(pixels, [&](const std::vector<int64_t>& pixel) {
      sum += grad_output[place(output, {pixel[0], o, pixel[1], pixel[2]})];
    });
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
