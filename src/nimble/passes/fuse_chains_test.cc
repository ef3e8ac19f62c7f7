#include "nimble/passes/fuse_chains.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

using FuseChains = PassTest;

// add, relu, mul by a number -> one chain
TEST_F(FuseChains, OneAfterTheOther) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3, 4, 4});
  w.output(w.scaled(w.relu(w.add(x, w.input({2, 3, 4, 4}))), 2));
  run(w, fuse_chains);
  EXPECT_EQ(ops(), "add relu mul_scalar");
}

// h = a + b, r = relu(h), both outputs -> one chain with two results
TEST_F(FuseChains, WhatOthersReadTooIsOneMoreResult) {
  NetworkWriter w;
  const Tensor h = w.add(w.input({2, 3}), w.input({2, 3}));
  w.output(h);
  w.output(w.relu(h));
  run(w, fuse_chains);
  EXPECT_EQ(ops(), "add relu");
  EXPECT_EQ(attributes_of<Chain>(graph.ops[0])->outputs.size(), 2u);
}

// h is read by a pool before the second chain: which then moves up to the first.
TEST_F(FuseChains, AnotherReaderInBetween) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  const Tensor h = w.add(x, w.input({1, 3, 4, 4}));
  w.output(w.pool(h, w.pool3x3(Pool::Kind::kMax)));
  w.output(w.relu(h));
  run(w, fuse_chains);
  EXPECT_EQ(ops(), "add relu, max pool 3x3");
}

// r needs h both directly and through the pool: it can stand at no other place.
TEST_F(FuseChains, NotAroundAnotherOp) {
  NetworkWriter w;
  const Tensor h = w.add(w.input({1, 3, 4, 4}), w.input({1, 3, 4, 4}));
  w.output(w.add(h, w.pool(h, w.pool3x3(Pool::Kind::kMax))));
  run(w, fuse_chains);
  EXPECT_EQ(ops(), "add, max pool 3x3, add");
}

TEST_F(FuseChains, TheSameInputIsReadOnce) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3});
  w.output(w.binary(ChainOp::kMul, w.activation(x, {ActivationKind::kSigmoid}), x));
  run(w, fuse_chains);
  EXPECT_EQ(ops(), "sigmoid mul");
  EXPECT_EQ(graph.ops[0].operands.size(), 2u);
}

TEST_F(FuseChains, SeenWithAnotherShape) {
  NetworkWriter w;
  const Tensor h = w.add(w.input({6, 4}), w.input({6, 4}));
  w.output(w.relu(w.reshape(h, {2, 3, 4})));
  run(w, fuse_chains);
  EXPECT_EQ(ops(), "add relu");
}

// A gate by channel is computed once for each channel, not once for each pixel.
TEST_F(FuseChains, NotWhatIsBroadcast) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  Tensor gate = w.activation(w.input({1, 3, 1, 1}), {ActivationKind::kSigmoid});
  gate.desc.sizes = x.desc.sizes;
  gate.desc.strides = {0, 1, 0, 0};
  w.output(w.binary(ChainOp::kMul, x, gate));
  run(w, fuse_chains);
  EXPECT_EQ(ops(), "sigmoid, mul");
}

// h = a + b, and sums of it by channel, which then make it as well.
TEST_F(FuseChains, IntoSums) {
  NetworkWriter w;
  const Tensor h = w.add(w.input({2, 3, 4, 4}), w.input({2, 3, 4, 4}));
  w.output(w.op(ChainSums{.chain = {1, {}, {}}, .sums = {0}}, {h}, {2, 3}));
  w.output(w.relu(h));
  run(w, fuse_chains);
  EXPECT_EQ(ops(), "channel sums of add, relu");
  EXPECT_EQ(attributes_of<ChainSums>(graph.ops[0])->chain.outputs.size(), 1u);
}

TEST_F(FuseChains, IntoSumsThatAloneReadIt) {
  NetworkWriter w;
  const Tensor h = w.add(w.input({2, 3, 4, 4}), w.input({2, 3, 4, 4}));
  w.output(w.op(ChainSums{.chain = {1, {}, {}}, .sums = {0}}, {h}, {2, 3}));
  run(w, fuse_chains);
  EXPECT_EQ(ops(), "channel sums of add");
  EXPECT_TRUE(attributes_of<ChainSums>(graph.ops[0])->chain.outputs.empty());
}

TEST_F(FuseChains, NotWithoutEnd) {
  NetworkWriter w;
  Tensor x = w.input({2, 3});
  for (int i = 0; i < 40; ++i) x = w.scaled(x, 1.01f);
  Tensor y = w.input({2, 3});
  for (int i = 0; i < 20; ++i) y = w.add(y, w.input({2, 3}));
  w.output(x);
  w.output(y);
  run(w, fuse_chains);
  EXPECT_GE(graph.ops.size(), 6u);
  EXPECT_LE(graph.ops.size(), 12u);
  for (const Op& op : graph.ops) {
    EXPECT_LE(op.operands.size(), 8u);
    EXPECT_LE(attributes_of<Chain>(op)->steps.size(), 16u);
  }
}

TEST_F(FuseChains, NotWhereAnInputChangesInBetween) {
  NetworkWriter w;
  const Tensor x = w.relu(w.input({2, 3}));
  const Tensor h = w.scaled(x, 2);
  const Tensor other = w.framework("aten::mul_", {x}, {2, 3});
  w.output(w.add(h, other));
  graph = w.finish();
  graph.ops[2].operands[0].writes = true;
  relink(graph);
  fuse_chains(graph);
  EXPECT_EQ(ops(), "relu, mul_scalar, aten::mul_, add");
}

}  // namespace
}  // namespace nimble::testing
