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
  for_each_index(input.sizes, [&](const std::vector<int64_t>& at) {
    double sum = 0;
    const int64_t group = at[1] / group_in;
    for_each_index(
        {group_out, weight.sizes[2], weight.sizes[3]}, [&](const std::vector<int64_t>& tap) {
          std::vector<int64_t> from = {at[0], group * group_out + tap[0], 0, 0};
          for (size_t d : {0, 1}) {
            const int64_t distance =
                at[d + 2] + convolution.padding[d] - tap[d + 1] * convolution.dilation[d];
            if (distance < 0 || distance % convolution.stride[d] != 0) return;
            from[d + 2] = distance / convolution.stride[d];
            if (from[d + 2] >= output.sizes[d + 2]) return;
          }
          sum += static_cast<double>(grad_output[place(output, from)]) *
                 weights[place(weight, {from[1], at[1] % group_in, tap[1], tap[2]})];
        });
    grad_input[place(input, at)] = static_cast<float>(sum);
  });
}

namespace {

std::vector<KernelCase> make_cases(const std::vector<cases::BackwardCase>& convolutions) {
  std::vector<KernelCase> list;
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
