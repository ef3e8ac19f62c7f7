#include <algorithm>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"

namespace nimble {
namespace {

using cases::dense;
using cases::image;

struct Shape {
  int64_t batch, channels, height, width, output_channels, kernel;
  int64_t stride = 1, dilation = 1;
  int64_t pixel_padding = 0;  // elements between a pixel and the next, of input and output
};

KernelCase make_case(const Shape& shape, SeparableConvolution both = {}) {
  Convolution& depthwise = both.depthwise;
  depthwise.groups = shape.channels;
  const int64_t extent = (shape.kernel - 1) * shape.dilation + 1;
  depthwise.padding = {extent / 2, extent / 2};
  depthwise.stride = {shape.stride, shape.stride};
  depthwise.dilation = {shape.dilation, shape.dilation};
  const auto output_size = [&](int64_t size) {
    return (size + extent / 2 * 2 - extent) / shape.stride + 1;
  };
  const int64_t height = output_size(shape.height);
  const int64_t width = output_size(shape.width);
  KernelCase made{both,
                  {image(shape.batch, shape.channels, shape.height, shape.width,
                         shape.channels + shape.pixel_padding),
                   dense({shape.channels, 1, shape.kernel, shape.kernel})}};
  if (depthwise.bias) made.operands.push_back(dense({shape.channels}));
  made.operands.push_back(dense({shape.output_channels, shape.channels, 1, 1}));
  if (both.pointwise.bias) made.operands.push_back(dense({shape.output_channels}));
  if (both.pointwise.epilogue.add)
    made.operands.push_back(image(shape.batch, shape.output_channels, height, width));
  made.operands.push_back(image(shape.batch, shape.output_channels, height, width,
                                shape.output_channels + shape.pixel_padding));
  return made;
}

}  // namespace

void separable_reference(const SeparableConvolution& both, std::span<const TensorDesc> operands,
                         void* const* data) {
  const TensorDesc& output = operands.back();
  const int64_t channels = operands[0].sizes[1];
  const TensorDesc between = dense({output.sizes[0], channels, output.sizes[2], output.sizes[3]});
  std::vector<float> values(static_cast<size_t>(between.numel()));
  const size_t first = both.depthwise.bias ? 3 : 2;

  std::vector<TensorDesc> descs(operands.begin(), operands.begin() + static_cast<long>(first));
  std::vector<void*> pointers(data, data + first);
  descs.push_back(between);
  pointers.push_back(values.data());
  convolution_reference(both.depthwise, descs, pointers.data());

  descs.assign(1, between);
  pointers.assign(1, values.data());
  descs.insert(descs.end(), operands.begin() + static_cast<long>(first), operands.end());
  pointers.insert(pointers.end(), data + first, data + operands.size());
  convolution_reference(both.pointwise, descs, pointers.data());
}

std::vector<KernelCase> separable_test_cases() {
  std::vector<KernelCase> list;
  constexpr int64_t kChannels[] = {1, 3, 11, 17, 44, 67};
  size_t turn = 0;
  for (int64_t kernel : {3, 5, 7})
    for (int64_t stride : {1, 2})
      for (int64_t dilation : {1, 2})
        for (int64_t size : {1, 2, 5, 7, 12}) {
          ++turn;
          SeparableConvolution both;
          both.depthwise.bias = turn % 2;
          both.depthwise.relu_input = turn % 3 == 0;
          if (turn % 4 == 0) both.depthwise.epilogue.first = {ActivationKind::kRelu};
          if (turn % 5 == 0) both.depthwise.epilogue.first = {ActivationKind::kSilu};
          both.pointwise.bias = turn / 2 % 2;
          if (turn % 3 == 1) both.pointwise.epilogue.first = {ActivationKind::kRelu};
          both.pointwise.epilogue.add = turn / 3 % 2;
          if (turn % 7 == 0) both.pointwise.epilogue.last = {ActivationKind::kClamp, 0, 6};
          list.push_back(make_case({.batch = turn % 5 == 0 ? 3 : 1,
                                    .channels = kChannels[turn % 6],
                                    .height = size,
                                    .width = 1 + (size + static_cast<int64_t>(turn)) % 12,
                                    .output_channels = kChannels[turn / 6 % 6],
                                    .kernel = kernel,
                                    .stride = stride,
                                    .dilation = dilation,
                                    .pixel_padding = turn % 4 == 1 ? 3 : 0},
                                   both));
        }
  list.push_back(make_case({0, 44, 7, 7, 44, 3}));
  list.push_back(make_case({1, 176, 9, 14, 100, 5}));  // several blocks
  return list;
}

std::vector<KernelCase> separable_bench_cases() {
  std::vector<KernelCase> list;
  const SeparableConvolution of_relu{.depthwise = {.relu_input = true},
                                     .pointwise = {.bias = true}};
  for (const Shape& shape : std::initializer_list<Shape>{// NASNet-A mobile.
                                                         {1, 32, 111, 111, 11, 5, 2},
                                                         {1, 11, 56, 56, 11, 5},
                                                         {1, 32, 111, 111, 11, 7, 2},
                                                         {1, 22, 28, 28, 22, 7},
                                                         {1, 44, 28, 28, 44, 3},
                                                         {1, 44, 28, 28, 44, 5},
                                                         {1, 44, 28, 28, 44, 7},
                                                         {1, 88, 28, 28, 88, 5, 2},
                                                         {1, 88, 14, 14, 88, 3},
                                                         {1, 88, 14, 14, 88, 5},
                                                         {1, 88, 14, 14, 88, 7},
                                                         {1, 176, 14, 14, 176, 5, 2},
                                                         {1, 176, 7, 7, 176, 3},
                                                         {1, 176, 7, 7, 176, 5},
                                                         {1, 176, 7, 7, 176, 7},
                                                         // NASNet-A large, AmoebaNet.
                                                         {1, 84, 42, 42, 84, 5},
                                                         {1, 168, 42, 42, 168, 3},
                                                         {1, 168, 42, 42, 168, 5},
                                                         {1, 336, 21, 21, 336, 5},
                                                         {1, 672, 11, 11, 672, 5},
                                                         {1, 672, 11, 11, 672, 7},
                                                         // DARTS.
                                                         {1, 48, 28, 28, 48, 3},
                                                         {1, 48, 28, 28, 48, 5, 1, 2},
                                                         {1, 96, 14, 14, 96, 3},
                                                         {1, 192, 7, 7, 192, 3},
                                                         {1, 36, 32, 32, 36, 3},
                                                         {1, 72, 16, 16, 72, 5, 1, 2},
                                                         {1, 144, 8, 8, 144, 3},
                                                         {1, 576, 8, 8, 576, 3}})
    list.push_back(make_case(shape, of_relu));
  return list;
}

}  // namespace nimble
