#include <algorithm>
#include <optional>

#include "nimble/kernels/activation_reference.h"
#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/convolution_backward_cases.h"
#include "nimble/kernels/depthwise.h"
#include "nimble/kernels/families.h"

namespace nimble {
namespace {

using cases::dense;
using cases::image;

const float* at(const TensorDesc& desc, const float* data, int64_t n, int64_t c, int64_t y,
                int64_t x) {
  return data + n * desc.strides[0] + c * desc.strides[1] + y * desc.strides[2] +
         x * desc.strides[3];
}

// The shape of a case; fields in the order they are varied.
struct Shape {
  int64_t n = 1, in = 16, height = 8, width = 8, out = 16;
  int64_t kernel_height = 1, kernel_width = 1;
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> padding = {0, 0};
  std::array<int64_t, 2> dilation = {1, 1};
  int64_t groups = 1;
  // Pixel strides of input, output and addend beyond their channels.
  int64_t in_gap = 0, out_gap = 0, addend_gap = 0;
  bool bias = true;
  bool planar_input = false;                    // NCHW
  std::array<int64_t, 2> more_output = {0, 0};  // far padding beyond the near one
  // Between the factors of channels (0: the same for all; then images have their own).
  std::optional<int64_t> scale_channel = std::nullopt;  // none: the input is not scaled
};

KernelCase make_case(const Shape& s, const Epilogue& epilogue = {}, bool winograd = false) {
  const auto extent = [&](int64_t size, int64_t kernel, size_t d) {
    const int64_t reach = s.dilation[d] * (kernel - 1) + 1;
    return std::max<int64_t>((size + 2 * s.padding[d] - reach) / s.stride[d] + 1, 0) +
           s.more_output[d];
  };
  const int64_t height = extent(s.height, s.kernel_height, 0);
  const int64_t width = extent(s.width, s.kernel_width, 1);
  Convolution convolution{.stride = s.stride,
                          .padding = s.padding,
                          .dilation = s.dilation,
                          .groups = s.groups,
                          .bias = s.bias,
                          .scale_input = s.scale_channel.has_value(),
                          .epilogue = epilogue,
                          .allow_winograd = winograd};
  KernelCase result{convolution, {}};
  result.operands.push_back(s.planar_input ? dense({s.n, s.in, s.height, s.width})
                                           : image(s.n, s.in, s.height, s.width, s.in + s.in_gap));
  result.operands.push_back(dense({s.out, s.in / s.groups, s.kernel_height, s.kernel_width}));
  if (s.bias) result.operands.push_back(dense({s.out}));
  if (s.scale_channel) {
    const int64_t channel = *s.scale_channel;
    TensorDesc scale = result.operands[0];
    scale.strides = {std::max<int64_t>(s.in * channel, 1), channel, 0, 0};
    result.operands.push_back(scale);
  }
  if (epilogue.add)
    result.operands.push_back(image(s.n, s.out, height, width, s.out + s.addend_gap));
  result.operands.push_back(image(s.n, s.out, height, width, s.out + s.out_gap));
  return result;
}

KernelCase forward_case(const cases::BackwardCase& training) {
  KernelCase result{training.convolution, {training.input, training.weight}};
  if (training.convolution.bias) result.operands.push_back(dense({training.weight.sizes[0]}));
  result.operands.push_back(training.output);
  return result;
}

Activation relu() {
  return {ActivationKind::kRelu};
}

Epilogue finish(Activation first, bool add = false, Activation last = {}) {
  return Epilogue{first, add, last};
}

}  // namespace

void convolution_reference(const Convolution& convolution, std::span<const TensorDesc> operands,
                           void* const* data) {
  const TensorDesc& input = operands[0];
  const TensorDesc& weight = operands[1];
  const TensorDesc& output = operands.back();
  const size_t scale_index = convolution.scale_operand();
  const size_t addend_index = convolution.addend_operand();
  const auto floats = [&](size_t i) { return static_cast<const float*>(data[i]); };
  float* result = static_cast<float*>(data[operands.size() - 1]);
  const int64_t group_in = weight.sizes[1];
  const int64_t group_out = weight.sizes[0] / convolution.groups;

  for (int64_t n = 0; n < output.sizes[0]; ++n)
    for (int64_t o = 0; o < output.sizes[1]; ++o)
      for (int64_t y = 0; y < output.sizes[2]; ++y)
        for (int64_t x = 0; x < output.sizes[3]; ++x) {
          double sum = convolution.bias ? floats(2)[o * operands[2].strides[0]] : 0;
          for (int64_t i = 0; i < group_in; ++i)
            for (int64_t ky = 0; ky < weight.sizes[2]; ++ky)
              for (int64_t kx = 0; kx < weight.sizes[3]; ++kx) {
                const int64_t iy = y * convolution.stride[0] - convolution.padding[0] +
                                   ky * convolution.dilation[0];
                const int64_t ix = x * convolution.stride[1] - convolution.padding[1] +
                                   kx * convolution.dilation[1];
                if (iy < 0 || ix < 0 || iy >= input.sizes[2] || ix >= input.sizes[3]) continue;
                const int64_t c = o / group_out * group_in + i;
                float value = *at(input, floats(0), n, c, iy, ix);
                if (convolution.relu_input && value < 0) value = 0;
                if (convolution.scale_input)
                  value *= *at(operands[scale_index], floats(scale_index), n, c, iy, ix);
                sum += static_cast<double>(value) * *at(weight, floats(1), o, i, ky, kx);
              }
          const float addend = convolution.epilogue.add
                                   ? *at(operands[addend_index], floats(addend_index), n, o, y, x)
                                   : 0;
          *const_cast<float*>(at(output, result, n, o, y, x)) =
              reference_epilogue(convolution.epilogue, static_cast<float>(sum), addend);
        }
}

std::vector<KernelCase> convolution_test_cases() {
  std::vector<KernelCase> list;
  // 1x1: channels, sizes, batches, tensors that are slices.
  for (int64_t in : {1, 3, 7, 17, 44})
    for (int64_t out : {1, 3, 16, 17, 33, 88})
      list.push_back(make_case({.n = 1 + in % 3, .in = in, .height = 5, .width = 7, .out = out}));
  for (int64_t size : {1, 2, 3, 4, 6, 9})
    list.push_back(make_case({.in = 20, .height = size, .width = size, .out = 50}));
  list.push_back(make_case({.n = 0, .in = 8, .out = 8}));
  list.push_back(make_case({.n = 3,
                            .in = 24,
                            .height = 4,
                            .width = 5,
                            .out = 36,
                            .in_gap = 7,
                            .out_gap = 5,
                            .addend_gap = 3},
                           finish(relu(), true, relu())));
  list.push_back(make_case({.in = 30, .height = 7, .width = 9, .out = 40, .stride = {2, 2}}));
  list.push_back(make_case({.n = 2,
                            .in = 30,
                            .height = 8,
                            .width = 6,
                            .out = 40,
                            .stride = {2, 1},
                            .in_gap = 2,
                            .bias = false}));
  list.push_back(
      make_case({.n = 2, .in = 5, .height = 4, .width = 4, .out = 9, .padding = {1, 2}}));
  list.push_back(
      make_case({.n = 2, .in = 12, .height = 3, .width = 4, .out = 20, .planar_input = true}));
  // 1x1 of a scaled input.
  for (int64_t in : {1, 3, 8, 16, 17, 45, 96})
    for (bool bias : {false, true})
      list.push_back(make_case({.n = 1 + in % 3,
                                .in = in,
                                .height = 5,
                                .width = 7,
                                .out = 20,
                                .bias = bias,
                                .scale_channel = 1},
                               finish(relu(), bias, {ActivationKind::kSilu})));
  for (int64_t size : {1, 2, 4, 9})
    list.push_back(make_case({.n = size == 1 ? 1 : 2,
                              .in = 37,
                              .height = size,
                              .width = size,
                              .out = 50,
                              .bias = false,
                              .scale_channel = 1},
                             finish({}, size == 4)));
  list.push_back(make_case({.n = 3,
                            .in = 24,
                            .height = 4,
                            .width = 5,
                            .out = 36,
                            .in_gap = 7,
                            .out_gap = 5,
                            .addend_gap = 3,
                            .scale_channel = 1},
                           finish(relu(), true, relu())));
  for (int64_t channel : {0, 2})
    for (int64_t out : {3, 17})  // weights are scaled, the image is
      list.push_back(make_case(
          {.n = 2, .in = 19, .height = 3, .width = 5, .out = out, .scale_channel = channel}));
  for (int64_t in : {1, 5, 31, 64})
    list.push_back(make_case({.n = 3,
                              .in = in,
                              .height = 9,
                              .width = 16,
                              .out = 35,
                              .in_gap = in % 3,
                              .out_gap = in % 2,
                              .bias = in > 5,
                              .scale_channel = 1},
                             finish(relu(), in < 31)));
  list.push_back(make_case({.n = 2,
                            .in = 3,
                            .height = 4,
                            .width = 5,
                            .out = 9,
                            .planar_input = true,
                            .scale_channel = 1}));
  list.push_back(make_case({.n = 0, .in = 8, .out = 8, .scale_channel = 1}));
  list.push_back(  // several blocks
      make_case({.n = 2, .in = 70, .height = 40, .width = 33, .out = 40, .scale_channel = 1}));
  list.push_back(  // stretches
      make_case({.n = 2, .in = 600, .height = 15, .width = 30, .out = 65, .scale_channel = 1},
                finish(relu(), true)));
  list.push_back(  // several blocks, and so many weights that the image is copied
      make_case({.n = 2, .in = 300, .height = 15, .width = 30, .out = 120, .scale_channel = 1}));
  // Windows.
  for (int64_t in : {1, 3, 7, 17})
    for (int64_t out : {1, 7, 17, 44})
      list.push_back(make_case({.n = 1 + in % 2,
                                .in = in,
                                .height = 6,
                                .width = 5,
                                .out = out,
                                .kernel_height = 3,
                                .kernel_width = 3,
                                .padding = {1, 1}}));
  for (int64_t size = 1; size <= 9; ++size)
    list.push_back(make_case({.n = 2,
                              .in = 9,
                              .height = size,
                              .width = 10 - size,
                              .out = 18,
                              .kernel_height = 3,
                              .kernel_width = 3,
                              .padding = {1, 1}},
                             finish(relu())));
  list.push_back(make_case({.n = 3,
                            .in = 8,
                            .height = 7,
                            .width = 9,
                            .out = 20,
                            .kernel_height = 3,
                            .kernel_width = 3}));
  list.push_back(make_case({.n = 3,
                            .in = 8,
                            .height = 7,
                            .width = 9,
                            .out = 20,
                            .kernel_height = 3,
                            .kernel_width = 3,
                            .in_gap = 4}));
  list.push_back(make_case({.n = 3,
                            .in = 8,
                            .height = 9,
                            .width = 9,
                            .out = 20,
                            .kernel_height = 3,
                            .kernel_width = 3,
                            .stride = {2, 2},
                            .padding = {1, 1}}));
  list.push_back(make_case(
      {.n = 0, .in = 8, .out = 20, .kernel_height = 3, .kernel_width = 3, .padding = {1, 1}}));
  list.push_back(make_case({.in = 17,
                            .height = 9,
                            .width = 9,
                            .out = 20,
                            .kernel_height = 1,
                            .kernel_width = 7,
                            .padding = {0, 3}}));
  list.push_back(make_case({.in = 17,
                            .height = 9,
                            .width = 9,
                            .out = 20,
                            .kernel_height = 7,
                            .kernel_width = 1,
                            .padding = {3, 0}}));
  list.push_back(make_case({.in = 17,
                            .height = 9,
                            .width = 9,
                            .out = 20,
                            .kernel_height = 5,
                            .kernel_width = 1,
                            .bias = false}));
  list.push_back(make_case({.n = 2,
                            .in = 6,
                            .height = 9,
                            .width = 8,
                            .out = 20,
                            .kernel_height = 3,
                            .kernel_width = 3,
                            .padding = {2, 2},
                            .dilation = {2, 2}}));
  list.push_back(make_case({.n = 2,
                            .in = 6,
                            .height = 9,
                            .width = 8,
                            .out = 20,
                            .kernel_height = 3,
                            .kernel_width = 3,
                            .dilation = {1, 3}}));
  list.push_back(make_case({.in = 6,
                            .height = 5,
                            .width = 5,
                            .out = 5,
                            .kernel_height = 3,
                            .kernel_width = 3,
                            .padding = {4, 3}}));
  list.push_back(make_case({.in = 6,
                            .height = 2,
                            .width = 2,
                            .out = 5,
                            .kernel_height = 5,
                            .kernel_width = 5,
                            .padding = {2, 2}}));
  list.push_back(make_case({.in = 6,
                            .height = 5,
                            .width = 6,
                            .out = 5,
                            .kernel_height = 2,
                            .kernel_width = 2,
                            .stride = {2, 2},
                            .more_output = {1, 1}}));
  // Deep and large enough for stretches of input channels.
  list.push_back(make_case({.in = 600, .height = 15, .width = 30, .out = 65},
                           finish(relu(), true, {ActivationKind::kSilu})));
  // First layers.
  list.push_back(make_case({.in = 3,
                            .height = 19,
                            .width = 23,
                            .out = 24,
                            .kernel_height = 7,
                            .kernel_width = 7,
                            .stride = {2, 2},
                            .padding = {3, 3},
                            .planar_input = true},
                           finish(relu())));
  list.push_back(make_case({.n = 2,
                            .in = 3,
                            .height = 19,
                            .width = 23,
                            .out = 32,
                            .kernel_height = 3,
                            .kernel_width = 3,
                            .stride = {2, 2}}));
  list.push_back(make_case({.n = 2,
                            .in = 3,
                            .height = 18,
                            .width = 37,
                            .out = 32,
                            .kernel_height = 3,
                            .kernel_width = 3,
                            .stride = {2, 2},
                            .planar_input = true}));
  // What follows a product.
  const Activation activations[] = {{ActivationKind::kNone},
                                    {ActivationKind::kRelu},
                                    {ActivationKind::kClamp, -0.25F, 0.5F},
                                    {ActivationKind::kLeakyRelu, 0.1F},
                                    {ActivationKind::kElu, 1.5F},
                                    {ActivationKind::kHardSwish},
                                    {ActivationKind::kHardSigmoid},
                                    {ActivationKind::kSilu},
                                    {ActivationKind::kSigmoid},
                                    {ActivationKind::kTanh},
                                    {ActivationKind::kGeluErf},
                                    {ActivationKind::kGeluTanh}};
  for (const Activation& activation : activations) {
    list.push_back(make_case(
        {.n = 2, .in = 20, .height = 3, .width = 3, .out = 37, .out_gap = 3, .addend_gap = 1},
        finish(activation)));
    list.push_back(
        make_case({.in = 20, .height = 1, .width = 1, .out = 70}, finish({}, true, activation)));
    list.push_back(make_case({.in = 10,
                              .height = 5,
                              .width = 6,
                              .out = 19,
                              .kernel_height = 3,
                              .kernel_width = 3,
                              .padding = {1, 1},
                              .out_gap = 2,
                              .addend_gap = 1},
                             finish(activation, true, relu())));
  }
  // One pixel in all.
  for (int64_t in : {1, 5, 64, 131})
    for (int64_t out : {1, 8, 61, 300})
      list.push_back(make_case({.in = in, .height = 1, .width = 1, .out = out}, finish(relu())));
  // Groups.
  for (int64_t groups : {2, 3, 4})
    for (int64_t kernel : {1, 3})
      list.push_back(make_case({.n = 2,
                                .in = groups * 6,
                                .height = 5,
                                .width = 6,
                                .out = groups * 18,
                                .kernel_height = kernel,
                                .kernel_width = kernel,
                                .padding = {kernel / 2, kernel / 2},
                                .groups = groups,
                                .in_gap = 2},
                               finish(relu(), true)));
  list.push_back(make_case({.n = 2,
                            .in = 6,
                            .height = 5,
                            .width = 6,
                            .out = 18,
                            .kernel_height = 3,
                            .kernel_width = 3,
                            .padding = {1, 1},
                            .groups = 6}));
  // Many rows, several blocks.
  list.push_back(make_case({.n = 2, .in = 40, .height = 20, .width = 31, .out = 150}));
  list.push_back(make_case({.in = 64,
                            .height = 30,
                            .width = 33,
                            .out = 20,
                            .kernel_height = 3,
                            .kernel_width = 3,
                            .padding = {1, 1}}));
  // Winograd, if the kernels have it.
  for (int64_t size : {3, 4, 5, 8, 14, 17})
    list.push_back(make_case({.n = 1 + size % 2,
                              .in = 5 + size,
                              .height = size,
                              .width = size + 1,
                              .out = 13 + 2 * size,
                              .kernel_height = 3,
                              .kernel_width = 3,
                              .padding = {1, 1}},
                             finish(relu()), true));
  list.push_back(make_case({.n = 3,
                            .in = 33,
                            .height = 13,
                            .width = 10,
                            .out = 36,
                            .kernel_height = 3,
                            .kernel_width = 3,
                            .in_gap = 3,
                            .out_gap = 2,
                            .addend_gap = 1},
                           finish({}, true, relu()), true));
  for (KernelCase& depthwise : depthwise_test_cases()) list.push_back(std::move(depthwise));
  // Weights that change: those of training, and some of the others.
  const size_t constant = list.size();
  for (size_t i = 0; i < constant; i += 5) {
    list.push_back(list[i]);
    std::get<Convolution>(list.back().attributes).constant_weight = false;
  }
  for (const cases::BackwardCase& training : cases::backward_test_cases())
    list.push_back(forward_case(training));
  return list;
}

std::vector<KernelCase> convolution_bench_cases() {
  std::vector<KernelCase> list;
  const auto add = [&](int64_t size, int64_t in, int64_t out, int64_t kernel = 1,
                       int64_t stride = 1) {
    list.push_back(make_case({.in = in,
                              .height = size,
                              .width = size,
                              .out = out,
                              .kernel_height = kernel,
                              .kernel_width = kernel,
                              .stride = {stride, stride},
                              .padding = {kernel / 2, kernel / 2}},
                             finish(relu()), true));
  };
  // ResNet-50.
  add(224, 3, 64, 7, 2);
  add(56, 64, 64);
  add(56, 64, 64, 3);
  add(56, 64, 256);
  add(56, 256, 64);
  add(56, 256, 512, 1, 2);
  add(28, 128, 128, 3);
  add(28, 128, 512);
  add(28, 512, 128);
  add(14, 256, 256, 3);
  add(28, 256, 256, 3, 2);
  add(14, 256, 1024);
  add(14, 1024, 256);
  add(7, 512, 512, 3);
  add(7, 512, 2048);
  add(7, 2048, 512);
  // EfficientNet-B5: outputs that no cache of a core holds.
  add(228, 24, 144);
  add(114, 40, 240);
  // NASNet-A mobile.
  for (const auto& [size, in, out] : {std::array<int64_t, 3>{56, 44, 11},
                                      {56, 11, 11},
                                      {28, 44, 44},
                                      {28, 132, 44},
                                      {28, 264, 44},
                                      {28, 88, 88},
                                      {14, 176, 88},
                                      {14, 528, 88},
                                      {14, 88, 88},
                                      {7, 352, 176},
                                      {7, 1056, 176},
                                      {7, 176, 176}})
    add(size, in, out);
  // MobileNetV2, EfficientNet.
  for (const auto& [size, in, out] : {std::array<int64_t, 3>{112, 32, 16},
                                      {112, 16, 96},
                                      {56, 24, 144},
                                      {28, 192, 32},
                                      {14, 384, 64},
                                      {14, 96, 576},
                                      {7, 160, 960},
                                      {7, 960, 320},
                                      {7, 320, 1280},
                                      {1, 240, 10},
                                      {1, 10, 240}})
    add(size, in, out);
  // EfficientNet-B0, behind squeeze and excitation.
  for (const auto& [size, in, out] : {std::array<int64_t, 3>{112, 32, 16},
                                      {56, 96, 24},
                                      {28, 144, 40},
                                      {14, 480, 112},
                                      {14, 672, 112},
                                      {7, 1152, 192}})
    list.push_back(
        make_case({.in = in, .height = size, .width = size, .out = out, .scale_channel = 1}));
  // Inception-v3.
  const auto add_window = [&](int64_t size, int64_t in, int64_t out, int64_t kh, int64_t kw,
                              int64_t stride = 1, bool pad = true) {
    list.push_back(make_case({.in = in,
                              .height = size,
                              .width = size,
                              .out = out,
                              .kernel_height = kh,
                              .kernel_width = kw,
                              .stride = {stride, stride},
                              .padding = {pad ? kh / 2 : 0, pad ? kw / 2 : 0}},
                             finish(relu()), true));
  };
  add_window(299, 3, 32, 3, 3, 2, false);
  add_window(149, 32, 32, 3, 3, 1, false);
  add_window(147, 32, 64, 3, 3);
  add_window(73, 80, 192, 3, 3, 1, false);
  add_window(35, 64, 96, 3, 3);
  add_window(35, 96, 96, 3, 3);
  add_window(35, 48, 64, 5, 5);
  add_window(35, 288, 384, 3, 3, 2, false);
  add_window(17, 160, 160, 1, 7);
  add_window(17, 160, 192, 7, 1);
  add_window(17, 192, 192, 7, 1);
  add_window(8, 384, 384, 1, 3);
  add_window(8, 448, 384, 3, 3);
  add_window(8, 2048, 320, 1, 1);
  for (KernelCase& depthwise : depthwise_bench_cases()) list.push_back(std::move(depthwise));
  for (const cases::BackwardCase& training : cases::backward_bench_cases())
    list.push_back(forward_case(training));
  return list;
}

}  // namespace nimble
