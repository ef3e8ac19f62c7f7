#include "nimble/passes/fuse_subsampling.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

using FuseSubsampling = PassTest;

const Pool kEverySecond{.kind = Pool::Kind::kAverage, .stride = {2, 2}};

// average pool 1x1 of stride 2, convolution 1x1 -> convolution 1x1 of stride 2
TEST_F(FuseSubsampling, IntoAConvolutionOfOnePixel) {
  for (int64_t size : {5, 6}) {
    NetworkWriter w;
    const Tensor y = w.pool(w.input({2, 3, size, 7}), kEverySecond);
    w.output(w.convolution(y, 4, 1, {.stride = {1, 2}}));
    run(w, fuse_subsampling);
    EXPECT_EQ(ops(), "convolution stride 2x4");
  }
}

TEST_F(FuseSubsampling, NotIntoALargerOneOrOfALargerPool) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 8, 8});
  w.output(w.convolution(w.pool(x, kEverySecond), 4, 3));
  w.output(w.convolution(w.pool(x, {.kernel = {2, 2}, .stride = {2, 2}}), 4, 1));
  run(w, fuse_subsampling);
  EXPECT_EQ(ops(), "average pool 1x1, convolution, max pool 2x2, convolution");
}

// Behind the pooled image there are zeros, in the image there would be pixels.
TEST_F(FuseSubsampling, NotWhereTheConvolutionPadsAtTheEnd) {
  NetworkWriter w;
  const Tensor y = w.pool(w.input({1, 3, 5, 5}), {.kind = Pool::Kind::kAverage, .stride = {3, 3}});
  w.output(w.convolution(y, 4, 1, {}, {1, 0}));
  run(w, fuse_subsampling);
  EXPECT_EQ(ops(), "average pool 1x1, convolution");
}

}  // namespace
}  // namespace nimble::testing
