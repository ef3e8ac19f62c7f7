#include "nimble/kernels/convolution_backward_cases.h"

#include <algorithm>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/training_layers.h"

namespace nimble::cases {
namespace {

struct Shape {
  int64_t n = 2, in = 16, height = 6, width = 5, out = 16;
  std::array<int64_t, 2> kernel = {3, 3};
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> padding = {1, 1};
  std::array<int64_t, 2> dilation = {1, 1};
  int64_t groups = 1;
  bool bias = false;
  bool winograd = false;
  int64_t in_gap = 0, out_gap = 0;  // pixel strides beyond the channels
  bool planar_input = false;        // NCHW
  bool planar_output = false;
  bool channels_last_weight = false;
};

BackwardCase make_case(const Shape& s) {
  std::array<int64_t, 2> size = {s.height, s.width};
  for (size_t d : {0, 1}) {
    const int64_t reach = s.dilation[d] * (s.kernel[d] - 1) + 1;
    size[d] = std::max<int64_t>((size[d] + 2 * s.padding[d] - reach) / s.stride[d] + 1, 0);
  }
  const int64_t in = s.in / s.groups;
  return {.convolution = {.stride = s.stride,
                          .padding = s.padding,
                          .dilation = s.dilation,
                          .groups = s.groups,
                          .bias = s.bias,
                          .allow_winograd = s.winograd,
                          .constant_weight = false},
          .input = s.planar_input ? dense({s.n, s.in, s.height, s.width})
                                  : image(s.n, s.in, s.height, s.width, s.in + s.in_gap),
          .weight = s.channels_last_weight ? image(s.out, in, s.kernel[0], s.kernel[1])
                                           : dense({s.out, in, s.kernel[0], s.kernel[1]}),
          .output = s.planar_output ? dense({s.n, s.out, size[0], size[1]})
                                    : image(s.n, s.out, size[0], size[1], s.out + s.out_gap)};
}

}  // namespace

std::vector<BackwardCase> backward_test_cases() {
  std::vector<BackwardCase> list;
  const auto add = [&](const Shape& shape) { list.push_back(make_case(shape)); };
  // 1x1, odd channels, both orders of weights.
  for (int64_t in : {1, 3, 17, 44})
    for (int64_t out : {1, 16, 33})
      add({.n = 5,
           .in = in,
           .height = 3,
           .out = out,
           .kernel = {1, 1},
           .padding = {0, 0},
           .bias = in % 2 == 0,
           .channels_last_weight = out == 33});
  for (int64_t batch : {1, 5, 33})  // pixels by batch
    for (int64_t size : {1, 2, 4})
      add({.n = batch,
           .in = 20,
           .height = size,
           .width = size,
           .out = 50,
           .kernel = {1, 1},
           .padding = {0, 0},
           .bias = true});
  add({.n = 3,
       .in = 70,
       .height = 1,
       .width = 1,
       .out = 140,
       .kernel = {1, 1},
       .padding = {0, 0},
       .in_gap = 3,
       .out_gap = 5});
  // 3x3 on small images: kernels larger than the image, batches of all sizes.
  for (int64_t size : {1, 2, 3, 4, 7, 9})
    for (int64_t batch : {1, 5, 9})
      add({.n = batch,
           .in = 10 + size,
           .height = size,
           .width = size == 7 ? 4 : size,
           .out = 30 - size,
           .bias = size == 4,
           .winograd = size > 2,
           .channels_last_weight = size == 3});
  add({.n = 9,
       .in = 24,
       .height = 8,
       .width = 8,
       .out = 40,
       .winograd = true,
       .in_gap = 4,
       .out_gap = 1,
       .channels_last_weight = true});
  // Strides, with rest and without; dilation; both.
  for (int64_t stride : {2, 3})
    for (int64_t kernel : {1, 2, 3, 5})
      for (int64_t size : {4, 7})
        add({.n = 3,
             .in = 18,
             .height = size,
             .width = size + 1,
             .out = 20,
             .kernel = {kernel, kernel},
             .stride = {stride, stride},
             .padding = {kernel / 2, kernel / 2},
             .channels_last_weight = size == 7});
  add({.n = 8, .in = 33, .height = 2, .width = 2, .out = 48, .stride = {2, 2}});
  add({.n = 8,
       .in = 33,
       .height = 2,
       .width = 2,
       .out = 48,
       .kernel = {1, 1},
       .stride = {2, 2},
       .padding = {0, 0}});
  add({.in = 6, .height = 9, .width = 8, .out = 20, .padding = {2, 2}, .dilation = {2, 2}});
  add({.in = 6, .height = 9, .width = 8, .out = 20, .padding = {0, 0}, .dilation = {1, 3}});
  add({.in = 6,
       .height = 9,
       .width = 11,
       .out = 20,
       .stride = {2, 3},
       .padding = {2, 1},
       .dilation = {2, 2}});
  add({.in = 6,
       .height = 12,
       .width = 11,
       .out = 20,
       .stride = {4, 1},
       .padding = {3, 2},
       .dilation = {2, 3}});
  add({.in = 6, .height = 5, .width = 5, .out = 5, .padding = {4, 3}});  // wide padding
  add({.in = 6,
       .height = 9,
       .width = 9,
       .out = 5,
       .kernel = {2, 2},
       .stride = {3, 3},
       .padding = {0, 0}});  // pixels that no window sees
  add({.in = 6, .height = 2, .width = 2, .out = 5, .kernel = {5, 5}, .padding = {2, 2}});
  add({.n = 6, .in = 17, .height = 4, .width = 4, .out = 20, .kernel = {1, 7}, .padding = {0, 3}});
  add({.n = 6, .in = 17, .height = 4, .width = 4, .out = 20, .kernel = {7, 1}, .padding = {3, 0}});
  add({.in = 9,
       .height = 9,
       .width = 9,
       .out = 20,
       .kernel = {5, 1},
       .padding = {0, 0},
       .bias = true});
  // First layers, of all strides.
  for (bool planar : {false, true}) {
    add({.n = 3,
         .in = 3,
         .height = 13,
         .width = 11,
         .out = 24,
         .kernel = {7, 7},
         .stride = {2, 2},
         .padding = {3, 3},
         .bias = true,
         .planar_input = planar});
    add({.in = 3,
         .height = 8,
         .width = 9,
         .out = 33,
         .stride = {2, 2},
         .bias = planar,
         .planar_input = planar});
    add({.n = 5,
         .in = 2,
         .height = 4,
         .width = 4,
         .out = 17,
         .dilation = {2, 2},
         .planar_input = planar});
  }
  add({.in = 20, .out = 10, .planar_input = true});
  add({.in = 20, .out = 10, .planar_output = true});
  // Groups.
  for (int64_t groups : {2, 3})
    for (int64_t stride : {1, 2})
      add({.n = 4,
           .in = groups * 6,
           .out = groups * 17,
           .stride = {stride, stride},
           .groups = groups,
           .bias = stride == 2,
           .channels_last_weight = groups == 3});
  add({.in = 6, .out = 18, .groups = 6});  // a channel multiplier
  add({.in = 6, .out = 3, .groups = 3});
  // Depthwise.
  for (int64_t channels : {2, 16, 37})
    for (int64_t kernel : {1, 2, 3, 5, 7})
      for (int64_t stride : {1, 2, 3})
        add({.n = 1 + channels % 3,
             .in = channels,
             .height = 3 + kernel,
             .width = 9,
             .out = channels,
             .kernel = {kernel, kernel},
             .stride = {stride, stride},
             .padding = {kernel / 2, kernel / 2},
             .groups = channels,
             .bias = kernel == 5,
             .channels_last_weight = stride == 3});
  for (int64_t size : {1, 2, 4})
    for (int64_t kernel : {3, 5})
      add({.n = 6,
           .in = 40,
           .height = size,
           .width = size,
           .out = 40,
           .kernel = {kernel, kernel},
           .padding = {kernel / 2, kernel / 2},
           .groups = 40});
  add({.in = 20,
       .height = 9,
       .width = 8,
       .out = 20,
       .kernel = {3, 5},
       .padding = {2, 0},
       .dilation = {2, 1},
       .groups = 20,
       .in_gap = 3,
       .out_gap = 2});
  // Several blocks of pixels; and nothing at all.
  add({.n = 40,
       .in = 33,
       .height = 8,
       .width = 8,
       .out = 65,
       .kernel = {1, 1},
       .padding = {0, 0},
       .bias = true});
  add({.n = 3, .in = 40, .height = 20, .width = 21, .out = 20, .bias = true});
  add({.n = 0, .in = 8, .out = 20, .bias = true});
  add({.n = 0, .in = 8, .out = 8, .groups = 8});
  return list;
}

std::vector<BackwardCase> backward_bench_cases() {
  std::vector<BackwardCase> list;
  for (const TrainingLayer& layer : training_layers())
    list.push_back(make_case({.n = kTrainingBatch,
                              .in = layer.in,
                              .height = layer.size,
                              .width = layer.size,
                              .out = layer.out,
                              .kernel = {layer.kernel, layer.kernel},
                              .stride = {layer.stride, layer.stride},
                              .padding = {layer.kernel / 2, layer.kernel / 2},
                              .groups = layer.groups,
                              .winograd = true}));
  return list;
}

}  // namespace nimble::cases
