#include "nimble/passes/fuse_separable.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

using FuseSeparable = PassTest;

// depthwise convolution, convolution 1x1 -> separable convolution
TEST_F(FuseSeparable, WithBiasesAddendAndActivations) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3, 5, 5});
  Tensor y = w.convolution(x, 3, 3,
                           {.stride = {2, 2},
                            .padding = {1, 1},
                            .groups = 3,
                            .bias = true,
                            .relu_input = true,
                            .epilogue = {.first = kRelu}});
  const Tensor weight = w.constant({4, 3, 1, 1});
  const Tensor bias = w.constant({4});
  const Tensor addend = w.input({2, 4, 3, 3});
  w.output(w.op(Convolution{.bias = true, .epilogue = {.add = true, .last = kRelu}},
                {y, weight, bias, addend}, {2, 4, 3, 3}));
  run(w, fuse_separable);
  EXPECT_EQ(ops(), "separable convolution stride 2x2 groups 3 of relu relu, 1x1 add relu");
}

TEST_F(FuseSeparable, NotOtherwise) {
  NetworkWriter w;
  const Tensor x = w.input({1, 4, 6, 6});
  w.output(w.convolution(w.depthwise(x, 3), 4, 3));                      // not 1x1
  w.output(w.convolution(w.depthwise(x, 3), 4, 1, {.stride = {2, 2}}));  // a stride
  w.output(w.convolution(w.depthwise(x, 3), 4, 1, {.groups = 2}));       // groups
  w.output(w.convolution(w.convolution(x, 8, 3, {.groups = 4}), 4, 1));  // a multiplier
  w.output(w.convolution(w.depthwise(x, 3), 4, 1, {}, {1, 1}));          // padded at the end
  const Tensor y = w.depthwise(x, 3);
  w.output(w.convolution(y, 4, 1));
  w.output(w.relu(y));  // another reader
  run(w, fuse_separable);
  EXPECT_EQ(graph.ops.size(), 13u);
}

}  // namespace
}  // namespace nimble::testing
