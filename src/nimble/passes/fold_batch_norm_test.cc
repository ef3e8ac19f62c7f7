#include "nimble/passes/fold_batch_norm.h"

#include "nimble/passes/fold_constants.h"
#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

using FoldBatchNorm = PassTest;

const auto fold = [](Graph& graph) {
  fold_constants(graph);
  fold_batch_norm(graph);
};

// convolution, batch norm -> convolution with bias
TEST_F(FoldBatchNorm, IntoAConvolution) {
  NetworkWriter w;
  w.output(w.batch_norm(w.convolution(w.input({2, 3, 5, 4}), 6, 3)));
  run(w, fold);
  EXPECT_EQ(ops(), "convolution");
  EXPECT_TRUE(attributes_of<Convolution>(graph.ops[0])->bias);
}

TEST_F(FoldBatchNorm, IntoAConvolutionWithBiasAndGroups) {
  NetworkWriter w;
  w.output(w.batch_norm(
      w.convolution(w.input({1, 4, 5, 4}), 8, 3, {.padding = {1, 1}, .groups = 4, .bias = true})));
  run(w, fold);
  EXPECT_EQ(ops(), "convolution groups 4");
}

TEST_F(FoldBatchNorm, TwiceInARow) {
  NetworkWriter w;
  w.output(w.batch_norm(w.batch_norm(w.convolution(w.input({1, 4, 5, 4}), 8, 1))));
  run(w, fold);
  EXPECT_EQ(ops(), "convolution");
}

TEST_F(FoldBatchNorm, AProductASumOrANumberAlone) {
  NetworkWriter w;
  const Tensor x = w.input({1, 4, 3, 3});
  const Tensor a = w.convolution(x, 5, 1);
  const Tensor b = w.convolution(x, 5, 1, {.bias = true});
  const Tensor vector = w.constant({5});
  w.output(w.binary(ChainOp::kMul, w.over_channels(vector, a), a));
  w.output(w.add(b, w.over_channels(vector, b)));
  w.output(w.scaled(w.convolution(x, 5, 1, {.bias = true}), 3));
  run(w, fold);
  EXPECT_EQ(ops(), "convolution, convolution, convolution");
}

TEST_F(FoldBatchNorm, OneNumberForAllChannels) {
  NetworkWriter w;
  const Tensor a = w.convolution(w.input({1, 4, 3, 3}), 5, 1);
  Tensor number = w.constant({1});
  number.desc.sizes = a.desc.sizes;
  number.desc.strides = {0, 0, 0, 0};
  w.output(w.add(a, number));
  run(w, fold);
  EXPECT_EQ(ops(), "convolution");
}

// matmul read as [1, 4, 5], * scale + shift along its columns -> matmul with bias
TEST_F(FoldBatchNorm, IntoAProductSeenWithAnotherShape) {
  for (bool bias : {false, true}) {
    NetworkWriter w;
    const Tensor y = w.reshape(w.linear(w.input({4, 3}), 5, bias), {1, 4, 5});
    const Tensor scale = w.over_last(w.constant({5}), {1, 4, 5});
    const Tensor shift = w.over_last(w.constant({5}), {1, 4, 5});
    w.output(
        w.op(Chain{3, {chain_step(ChainOp::kMulAdd, 0, 1, 2)}, {3}}, {y, scale, shift}, {1, 4, 5}));
    run(w, fold);
    EXPECT_EQ(ops(), "matmul bias");
  }
}

TEST_F(FoldBatchNorm, ANumberIsAlphaOfAProduct) {
  NetworkWriter w;
  const Tensor a = w.input({2, 4, 3});
  const Tensor b = w.input({2, 3, 5});
  w.output(w.scaled(w.op(MatMul{}, {a, b}, {2, 4, 5}), 0.125f));
  run(w, fold);
  EXPECT_EQ(ops(), "matmul");
  EXPECT_EQ(attributes_of<MatMul>(graph.ops[0])->alpha, 0.125f);
}

TEST_F(FoldBatchNorm, NotWithAnotherReaderOrAsAnOutput) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  const Tensor a = w.convolution(x, 4, 1);
  w.output(w.batch_norm(a));
  w.output(w.relu(a));
  const Tensor b = w.convolution(x, 4, 1);
  w.output(b);
  w.output(w.batch_norm(b));
  run(w, fold);
  EXPECT_EQ(ops(), "convolution, muladd, relu, convolution, muladd");
}

TEST_F(FoldBatchNorm, NotBehindAnActivation) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  w.output(w.batch_norm(w.convolution(x, 4, 1, {.epilogue = {.first = kRelu}})));
  run(w, fold);
  EXPECT_EQ(ops(), "convolution relu, muladd");
}

TEST_F(FoldBatchNorm, NotByPixelOrOfWhatIsNoConstant) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  const Tensor a = w.convolution(x, 4, 1);
  w.output(w.add(a, w.constant({1, 4, 4, 4})));
  const Tensor b = w.convolution(x, 4, 1);
  w.output(w.add(b, w.over_channels(w.input({4}), b)));
  run(w, fold);
  EXPECT_EQ(ops(), "convolution, add, convolution, add");
}

}  // namespace
}  // namespace nimble::testing
