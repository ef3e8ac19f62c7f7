#include "nimble/passes/fuse_input_relu.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

using FuseInputRelu = PassTest;

// relu, two depthwise convolutions -> two depthwise convolutions of relu
TEST_F(FuseInputRelu, IntoAllDepthwiseReaders) {
  NetworkWriter w;
  const Tensor r = w.relu(w.input({1, 3, 5, 5}));
  w.output(w.depthwise(r, 3));
  w.output(w.depthwise(r, 5, 2));
  run(w, fuse_input_relu);
  EXPECT_EQ(ops(), "convolution groups 3 of relu, convolution stride 2x2 groups 3 of relu");
}

TEST_F(FuseInputRelu, OfAPartOfTheImage) {
  NetworkWriter w;
  Tensor r = w.relu(w.input({1, 3, 5, 5}));
  r.desc.sizes[2] -= 1;
  r.desc.offset += r.desc.strides[2];
  w.output(w.depthwise(r, 3));
  run(w, fuse_input_relu);
  EXPECT_EQ(ops(), "convolution groups 3 of relu");
}

TEST_F(FuseInputRelu, NotIfOthersReadItOrItIsAnOutput) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 5, 5});
  const Tensor a = w.relu(x);
  w.output(w.depthwise(a, 3));
  w.output(w.convolution(a, 4, 1));
  const Tensor b = w.relu(x);
  w.output(b);
  w.output(w.depthwise(b, 3));
  run(w, fuse_input_relu);
  EXPECT_EQ(ops(), "relu, convolution groups 3, convolution, relu, convolution groups 3");
}

TEST_F(FuseInputRelu, NotOtherActivations) {
  NetworkWriter w;
  w.output(w.depthwise(w.activation(w.input({1, 3, 5, 5}), {ActivationKind::kSigmoid}), 3));
  run(w, fuse_input_relu);
  EXPECT_EQ(ops(), "sigmoid, convolution groups 3");
}

TEST_F(FuseInputRelu, NotWhereTheInputChangesInBetween) {
  NetworkWriter w;
  const Tensor x = w.scaled(w.input({1, 3, 5, 5}), 2);
  const Tensor r = w.relu(x);
  w.framework("aten::mul_", {x}, {1});
  w.output(w.depthwise(r, 3));
  graph = w.finish();
  graph.ops[2].operands[0].writes = true;
  relink(graph);
  fuse_input_relu(graph);
  EXPECT_EQ(ops(), "mul_scalar, relu, aten::mul_, convolution groups 3");
}

}  // namespace
}  // namespace nimble::testing
