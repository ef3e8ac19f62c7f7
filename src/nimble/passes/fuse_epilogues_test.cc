#include "nimble/passes/fuse_epilogues.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

using FuseEpilogues = PassTest;

// convolution, relu -> convolution relu
TEST_F(FuseEpilogues, AnActivation) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  const Tensor y = w.relu(w.convolution(x, 4, 3));
  w.output(y);
  run(w, fuse_epilogues);
  EXPECT_EQ(ops(), "convolution relu");
  EXPECT_EQ(graph.ops[0].operands.back().memory, y.memory);
}

TEST_F(FuseEpilogues, OfEveryOpThatHasOne) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  w.output(w.relu(w.pool(x, w.pool3x3(Pool::Kind::kMax))));
  w.output(w.activation(w.linear(w.input({4, 3}), 5), {ActivationKind::kGeluErf}));
  w.output(w.relu(w.op(LayerNorm{}, {w.input({4, 3})}, {4, 3})));
  run(w, fuse_epilogues);
  EXPECT_EQ(ops(), "max pool 3x3 relu, matmul gelu, layer_norm relu");
}

// relu(convolution), + x, relu -> one op
TEST_F(FuseEpilogues, ActivationAdditionActivation) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  w.output(w.relu(w.add(x, w.relu(w.convolution(x, 3, 1)))));
  run(w, fuse_epilogues);
  EXPECT_EQ(ops(), "convolution relu add relu");
}

TEST_F(FuseEpilogues, NoRoomForAThirdActivation) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  w.output(w.relu(w.scaled(w.relu(w.relu(w.convolution(x, 3, 1))), 2)));
  run(w, fuse_epilogues);
  EXPECT_EQ(ops(), "convolution relu, relu, mul_scalar, relu");
}

// The sum of two branches goes into the one that ends later, which moves nowhere.
TEST_F(FuseEpilogues, ASumGoesIntoTheLaterBranch) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  const Tensor a = w.convolution(x, 3, 1);
  const Tensor b = w.convolution(x, 3, 3, {.padding = {1, 1}});
  w.output(w.add(b, a));
  run(w, fuse_epilogues);
  EXPECT_EQ(ops(), "convolution, convolution add");
  EXPECT_EQ(graph.ops[0].operands.back().memory, a.memory);
}

// The convolution ends first, but takes longer: it moves down to where both are there.
TEST_F(FuseEpilogues, ASumGoesIntoAConvolutionRatherThanAPool) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  const Tensor a = w.convolution(x, 3, 1);
  const Tensor b = w.pool(x, w.pool3x3(Pool::Kind::kAverage));
  w.output(w.add(a, b));
  run(w, fuse_epilogues);
  EXPECT_EQ(ops(), "average pool 3x3, convolution add");
}

TEST_F(FuseEpilogues, ASumOfAPoolAndSomethingElse) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  w.output(w.add(w.pool(x, w.pool3x3(Pool::Kind::kAverage)), x));
  run(w, fuse_epilogues);
  EXPECT_EQ(ops(), "average pool 3x3 add");
}

// matmul [6, 5] read as [2, 3, 5], + x, relu -> one op on [6, 5]
TEST_F(FuseEpilogues, SeenWithAnotherShape) {
  NetworkWriter w;
  const Tensor y = w.reshape(w.linear(w.input({6, 4}), 5), {2, 3, 5});
  w.output(w.relu(w.add(y, w.input({2, 3, 5}))));
  run(w, fuse_epilogues);
  EXPECT_EQ(ops(), "matmul add relu");
}

TEST_F(FuseEpilogues, NotIfSomebodyElseReadsOrItIsAnOutput) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  const Tensor a = w.convolution(x, 3, 1);
  w.output(w.relu(a));
  w.output(w.scaled(a, 2));
  const Tensor b = w.convolution(x, 3, 1);
  w.output(b);
  w.output(w.relu(b));
  run(w, fuse_epilogues);
  EXPECT_EQ(ops(), "convolution, relu, mul_scalar, convolution, relu");
}

TEST_F(FuseEpilogues, NotABroadcastAddendNorTheSameTwice) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  const Tensor a = w.convolution(x, 3, 1);
  w.output(w.add(a, w.over_channels(w.input({3}), a)));
  const Tensor b = w.convolution(x, 3, 1);
  w.output(w.add(b, b));
  run(w, fuse_epilogues);
  EXPECT_EQ(ops(), "convolution, add, convolution, add");
}

TEST_F(FuseEpilogues, NotPartOfTheResult) {
  NetworkWriter w;
  Tensor a = w.convolution(w.input({1, 3, 4, 4}), 3, 1);
  a.desc.sizes[2] = 3;
  w.output(w.relu(a));
  run(w, fuse_epilogues);
  EXPECT_EQ(ops(), "convolution, relu");
}

// What the convolution reads changes before the addend is there: it cannot move.
TEST_F(FuseEpilogues, NotWhereTheInputChangesInBetween) {
  NetworkWriter w;
  const Tensor x = w.relu(w.input({1, 3, 4, 4}));
  const Tensor a = w.convolution(x, 3, 1);
  const Tensor other = w.framework("aten::mul_", {x}, {1, 3, 4, 4});
  w.output(w.add(a, other));
  graph = w.finish();
  graph.ops[2].operands[0].writes = true;
  relink(graph);
  fuse_epilogues(graph);
  EXPECT_EQ(ops(), "relu, convolution, aten::mul_, add");
}

// The same, but what is added was there before: the sum moves up.
TEST_F(FuseEpilogues, WhereTheInputChangesButTheAddendIsThere) {
  NetworkWriter w;
  const Tensor other = w.relu(w.input({1, 3, 4, 4}));
  const Tensor x = w.relu(w.input({1, 3, 4, 4}));
  const Tensor a = w.convolution(x, 3, 1);
  w.framework("aten::mul_", {x}, {1, 3, 4, 4});
  w.output(w.relu(w.add(a, other)));
  graph = w.finish();
  graph.ops[3].operands[0].writes = true;
  relink(graph);
  fuse_epilogues(graph);
  EXPECT_EQ(ops(), "relu, relu, convolution add relu, aten::mul_");
}

}  // namespace
}  // namespace nimble::testing
