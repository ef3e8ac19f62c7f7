#include <algorithm>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/depthwise.h"

namespace nimble {
namespace {

using cases::dense;
using cases::image;

struct Shape {
  int64_t batch, channels, height, width;
  int64_t kernel_height, kernel_width;
  int64_t stride = 1, dilation = 1;
  int64_t padding = -1;       // -1: such that stride 1 keeps the size
  int64_t pixel_padding = 0;  // elements between a pixel and the next
};

KernelCase make_case(const Shape& shape, Convolution convolution = {}) {
  const int64_t extent[2] = {(shape.kernel_height - 1) * shape.dilation + 1,
                             (shape.kernel_width - 1) * shape.dilation + 1};
  const int64_t size[2] = {shape.height, shape.width};
  int64_t output[2];
  for (int d = 0; d < 2; ++d) {
    convolution.padding[d] = shape.padding < 0 ? extent[d] / 2 : shape.padding;
    convolution.stride[d] = shape.stride;
    convolution.dilation[d] = shape.dilation;
    output[d] = (size[d] + 2 * convolution.padding[d] - extent[d]) / shape.stride + 1;
  }
  convolution.groups = shape.channels;
  const int64_t pixel = shape.channels + shape.pixel_padding;
  const TensorDesc result = image(shape.batch, shape.channels, output[0], output[1], pixel);
  KernelCase made{convolution,
                  {image(shape.batch, shape.channels, shape.height, shape.width, pixel),
                   dense({shape.channels, 1, shape.kernel_height, shape.kernel_width})}};
  if (convolution.bias) made.operands.push_back(dense({shape.channels}));
  if (convolution.epilogue.add)
    made.operands.push_back(image(shape.batch, shape.channels, output[0], output[1]));
  made.operands.push_back(result);
  return made;
}

}  // namespace

std::vector<KernelCase> depthwise_test_cases() {
  std::vector<KernelCase> list;
  constexpr int64_t kChannels[] = {1, 3, 11, 17, 44, 67};
  // Every specialised kernel on every width of a row's division, the attributes taking turns.
  size_t turn = 0;
  for (int64_t kernel : {3, 5, 7})
    for (int64_t stride : {1, 2, 3})
      for (int64_t dilation : {1, 2})
        for (int64_t width = 1; width <= 17; width += 1 + width / 12) {
          ++turn;
          Convolution convolution;
          convolution.bias = turn % 2;
          convolution.relu_input = turn / 2 % 2;
          convolution.epilogue.first = turn % 5 == 0 ? Activation{ActivationKind::kRelu}
                                       : turn % 5 == 1
                                           ? Activation{ActivationKind::kClamp, -0.3f, 0.4f}
                                       : turn % 5 == 2 ? Activation{ActivationKind::kHardSwish}
                                                       : Activation{};
          convolution.epilogue.add = turn % 7 == 0;
          if (turn % 14 == 0) convolution.epilogue.last = {ActivationKind::kRelu};
          list.push_back(make_case({.batch = turn % 9 == 0 ? 3 : 1,
                                    .channels = kChannels[turn % 6],
                                    .height = 1 + static_cast<int64_t>(turn % 5),
                                    .width = width,
                                    .kernel_height = kernel,
                                    .kernel_width = kernel,
                                    .stride = stride,
                                    .dilation = dilation,
                                    .pixel_padding = turn % 3 == 0 ? 5 : 0},
                                   convolution));
        }
  // Other kernels, uneven ones, none or much padding.
  for (int64_t channels : kChannels) {
    list.push_back(make_case({1, channels, 6, 9, 1, 7}));
    list.push_back(make_case({2, channels, 6, 9, 7, 1}, {.relu_input = true}));
    list.push_back(make_case({1, channels, 9, 8, 2, 4, 2, 3}));
    list.push_back(make_case({1, channels, 5, 12, 9, 9}));
    list.push_back(make_case({1, channels, 12, 11, 3, 3, 2, 1, 0}));
    list.push_back(make_case({1, channels, 12, 11, 5, 5, 1, 1, 0}, {.bias = true}));
    list.push_back(
        make_case({1, channels, 2, 3, 3, 3, 1, 1, 5}, {.bias = true}));  // rows of nothing
    list.push_back(make_case({1, channels, 4, 8, 11, 11, 4, 2, 12}));
  }
  list.push_back(make_case({0, 44, 5, 5, 3, 3}));
  return list;
}

std::vector<KernelCase> depthwise_bench_cases() {
  std::vector<KernelCase> list;
  const Convolution relu6{.bias = true, .epilogue = {.first = {ActivationKind::kClamp, 0, 6}}};
  const Convolution silu{.bias = true, .epilogue = {.first = {ActivationKind::kSilu}}};
  const Convolution of_relu{.relu_input = true};
  // MobileNetV2.
  for (const Shape& shape : std::initializer_list<Shape>{{1, 32, 112, 112, 3, 3},
                                                         {1, 96, 112, 112, 3, 3, 2},
                                                         {1, 144, 56, 56, 3, 3},
                                                         {1, 192, 28, 28, 3, 3},
                                                         {1, 384, 14, 14, 3, 3},
                                                         {1, 576, 14, 14, 3, 3, 2},
                                                         {1, 960, 7, 7, 3, 3}})
    list.push_back(make_case(shape, relu6));
  // EfficientNet-B0; of B5, whose images do not fit into a cache, the first layers.
  for (const Shape& shape : std::initializer_list<Shape>{{1, 48, 228, 228, 3, 3},
                                                         {1, 144, 228, 228, 3, 3, 2},
                                                         {1, 240, 114, 114, 3, 3},
                                                         {1, 144, 56, 56, 5, 5, 2},
                                                         {1, 240, 28, 28, 5, 5},
                                                         {1, 480, 14, 14, 5, 5},
                                                         {1, 672, 14, 14, 5, 5, 2},
                                                         {1, 1152, 7, 7, 5, 5}})
    list.push_back(make_case(shape, silu));
  // NASNet-A mobile, NASNet-A large, DARTS: the first halves of their separable convolutions.
  for (const Shape& shape : std::initializer_list<Shape>{{1, 44, 28, 28, 3, 3},
                                                         {1, 44, 28, 28, 5, 5},
                                                         {1, 44, 28, 28, 7, 7},
                                                         {1, 11, 112, 112, 5, 5, 2},
                                                         {1, 22, 56, 56, 7, 7, 2},
                                                         {1, 88, 14, 14, 5, 5},
                                                         {1, 176, 7, 7, 3, 3},
                                                         {1, 176, 7, 7, 5, 5},
                                                         {1, 176, 7, 7, 7, 7},
                                                         {1, 168, 42, 42, 5, 5},
                                                         {1, 336, 21, 21, 5, 5},
                                                         {1, 672, 11, 11, 7, 7},
                                                         {1, 48, 28, 28, 5, 5, 1, 2},
                                                         {1, 96, 14, 14, 3, 3, 1, 2}})
    list.push_back(make_case(shape, of_relu));
  return list;
}

}  // namespace nimble
