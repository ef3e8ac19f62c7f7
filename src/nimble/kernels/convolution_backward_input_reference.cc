#include "nimble/kernels/convolution_backward_cases.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

void convolution_backward_input_reference(const ConvolutionBackwardInput& convolution,
                                          std::span<const TensorDesc> operands, void* const* data) {
  const TensorDesc& output = operands[0];
  const TensorDesc& weight = operands[1];
  const TensorDesc& input = operands[2];
  const auto* grad_output = static_cast<const float*>(data[0]);
  const auto* weights = static_cast<const float*>(data[1]);
  auto* grad_input = static_cast<float*>(data[2]);
  const int64_t group_in = weight.sizes[1];
  const int64_t group_out = weight.sizes[0] / convolution.groups;
  const auto& ws = weight.strides;
  // Where the window lies of which a tap is at `at`, or -1.
  const auto window = [&](size_t d, int64_t at, int64_t tap) -> int64_t {
    const int64_t distance = at + convolution.padding[d] - tap * convolution.dilation[d];
    if (distance < 0 || distance % convolution.stride[d] != 0) return -1;
    const int64_t index = distance / convolution.stride[d];
    return index < output.sizes[d + 2] ? index : -1;
  };
  for_each_index(input.sizes, [&](const std::vector<int64_t>& at) {
    double sum = 0;
    const int64_t first = at[1] / group_in * group_out;
    for (int64_t ky = 0; ky < weight.sizes[2]; ++ky)
      for (int64_t kx = 0; kx < weight.sizes[3]; ++kx) {
        const int64_t y = window(0, at[2], ky);
        const int64_t x = window(1, at[3], kx);
        if (y < 0 || x < 0) continue;
        const float* from =
            grad_output + at[0] * output.strides[0] + y * output.strides[2] + x * output.strides[3];
        const float* tap = weights + at[1] % group_in * ws[1] + ky * ws[2] + kx * ws[3];
        for (int64_t o = first; o < first + group_out; ++o)
          sum += static_cast<double>(from[o * output.strides[1]]) * tap[o * ws[0]];
      }
    grad_input[place(input, at)] = static_cast<float>(sum);
  });
}

namespace {

std::vector<KernelCase> make_cases(const std::vector<cases::BackwardCase>& convolutions) {
  std::vector<KernelCase> list;
  list.reserve(convolutions.size());
  for (const auto& [convolution, input, weight, output] : convolutions)
    list.push_back({ConvolutionBackwardInput{.stride = convolution.stride,
                                             .padding = convolution.padding,
                                             .dilation = convolution.dilation,
                                             .groups = convolution.groups,
                                             .allow_winograd = convolution.allow_winograd},
                    {output, weight, input}});
  return list;
}

}  // namespace

std::vector<KernelCase> convolution_backward_input_test_cases() {
  return make_cases(cases::backward_test_cases());
}
std::vector<KernelCase> convolution_backward_input_bench_cases() {
  return make_cases(cases::backward_bench_cases());
}

}  // namespace nimble
