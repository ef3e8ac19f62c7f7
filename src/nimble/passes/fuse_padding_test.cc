#include "nimble/passes/fuse_padding.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

using FusePadding = PassTest;

Pool average(int64_t kernel, int64_t stride) {
  return {.kind = Pool::Kind::kAverage, .kernel = {kernel, kernel}, .stride = {stride, stride}};
}

// pad, convolution -> convolution that pads
TEST_F(FusePadding, IntoAConvolution) {
  for (int64_t end : {0, 1, 2}) {
    NetworkWriter w;
    const Tensor x = w.pad(w.input({2, 3, 5, 6}), {0, 0, 1, 0}, {0, 0, end, 1});
    w.output(w.convolution(x, 4, 3, {.stride = {2, 2}, .padding = {1, 0}}));
    run(w, fuse_padding);
    EXPECT_EQ(ops(), "convolution stride 2x2");
    EXPECT_EQ(attributes_of<Convolution>(graph.ops[0])->padding[0], 2);
  }
}

TEST_F(FusePadding, IntoEveryReaderAndStaysForTheOthers) {
  NetworkWriter w;
  const Tensor x = w.pad(w.input({1, 3, 5, 5}), {0, 0, 1, 1}, {0, 0, 1, 1});
  w.output(w.convolution(x, 4, 3));
  w.output(w.convolution(x, 2, 1));
  run(w, fuse_padding);
  EXPECT_EQ(ops(), "convolution, convolution");

  NetworkWriter other;
  const Tensor y = other.pad(other.input({1, 3, 5, 5}), {0, 0, 1, 1}, {0, 0, 1, 1});
  other.output(other.convolution(y, 4, 3));
  other.output(other.relu(y));
  run(other, fuse_padding);
  EXPECT_EQ(ops(), "pad, convolution, relu");
}

// Cropped at the one end, padded at the other.
TEST_F(FusePadding, WhatCropsAndPads) {
  NetworkWriter w;
  const Tensor x = w.pad(w.input({1, 3, 5, 5}), {0, 0, -1, 1}, {0, 0, 1, -2});
  w.output(w.convolution(x, 4, 3, {.padding = {1, 1}}));
  run(w, fuse_padding);
  EXPECT_EQ(ops(), "convolution");
}

TEST_F(FusePadding, WhatOnlyCropsIsAView) {
  NetworkWriter w;
  const Tensor x = w.pad(w.input({1, 3, 5, 5}), {0, -1, -1, 0}, {0, 0, -1, -1}, 7);
  w.output(w.relu(x));
  w.output(w.pool(x, w.pool3x3(Pool::Kind::kMax)));
  run(w, fuse_padding);
  EXPECT_EQ(ops(), "relu, max pool 3x3");
}

// A reader sees only what was not padded: x[1:] of what has one row more in front.
TEST_F(FusePadding, APaddedRowThatIsCutOffAgain) {
  NetworkWriter w;
  Tensor x = w.pad(w.input({1, 3, 5, 5}), {0, 0, 1, 0}, {0, 0, 0, 0}, 7);
  x.desc.sizes[2] -= 1;
  x.desc.offset += x.desc.strides[2];
  w.output(w.relu(x));
  run(w, fuse_padding);
  EXPECT_EQ(ops(), "relu");
}

TEST_F(FusePadding, IntoAnAverageThatCountsZeros) {
  NetworkWriter w;
  const Tensor x = w.pad(w.input({1, 2, 5, 5}), {0, 0, 1, 1}, {0, 0, 0, 1});
  w.output(w.pool(x, average(3, 2)));
  Pool not_counting = average(3, 1);
  not_counting.count_include_pad = false;  // but it has no padding of its own
  w.output(w.pool(x, not_counting));
  run(w, fuse_padding);
  EXPECT_EQ(ops(), "average pool 3x3, average pool 3x3");
}

TEST_F(FusePadding, IntoAMaximumOfMinusInfinity) {
  NetworkWriter w;
  const Tensor x = w.pad(w.input({1, 2, 5, 5}), {0, 0, 1, 1}, {0, 0, 1, 1}, -INFINITY);
  w.output(w.pool(x, {.kernel = {3, 3}, .stride = {2, 2}}));
  run(w, fuse_padding);
  EXPECT_EQ(ops(), "max pool 3x3");
}

// The last row is padding, but no window reaches it.
TEST_F(FusePadding, PaddingThatAPoolDoesNotReach) {
  NetworkWriter w;
  const Tensor x = w.pad(w.input({1, 2, 6, 6}), {0, 0, -1, -1}, {0, 0, 1, 1});
  w.output(w.pool(x, {.kernel = {1, 1}, .stride = {2, 2}}));
  run(w, fuse_padding);
  EXPECT_EQ(ops(), "max pool 1x1");
}

TEST_F(FusePadding, NotWhereItIsNotExact) {
  NetworkWriter w;
  const Tensor x = w.input({1, 2, 5, 5});
  const Tensor zeros = w.pad(x, {0, 0, 1, 1}, {0, 0, 1, 1});
  const Tensor ones = w.pad(x, {0, 0, 1, 1}, {0, 0, 1, 1}, 1);
  const Tensor channels = w.pad(x, {0, 1, 0, 0}, {0, 0, 0, 0});
  w.output(w.pool(zeros, {.kernel = {3, 3}}));
  w.output(w.pool(zeros, w.pool3x3(Pool::Kind::kAverage)));
  w.output(w.convolution(ones, 2, 3));
  w.output(w.convolution(channels, 2, 3));
  run(w, fuse_padding);
  EXPECT_EQ(graph.ops.size(), 7u);
}

TEST_F(FusePadding, NotOfWhatChangesInBetween) {
  NetworkWriter w;
  const Tensor x = w.relu(w.input({1, 3, 5, 5}));
  const Tensor padded = w.pad(x, {0, 0, 1, 1}, {0, 0, 1, 1});
  w.framework("aten::mul_", {x}, {1});
  w.output(w.convolution(padded, 4, 3));
  graph = w.finish();
  graph.ops[2].operands[0].writes = true;
  relink(graph);
  fuse_padding(graph);
  EXPECT_EQ(ops(), "relu, pad, aten::mul_, convolution");
}

}  // namespace
}  // namespace nimble::testing
