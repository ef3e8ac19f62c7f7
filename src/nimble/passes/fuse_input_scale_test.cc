#include "nimble/passes/fuse_input_scale.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

class FuseInputScale : public PassTest {
 protected:
  // The image times the scale.
  static Tensor product(NetworkWriter& w, const Tensor& image, const Tensor& scale) {
    return w.binary(ChainOp::kMul, image, scale);
  }
  // A scale for each image and channel.
  static Tensor scale_of(NetworkWriter& w, const Tensor& image) {
    return w.over_pixels(w.input({image.desc.sizes[0], image.desc.sizes[1], 1, 1}), image);
  }
};

// mul, convolution -> convolution of scaled
TEST_F(FuseInputScale, EitherFactorIsTheScale) {
  for (bool scale_first : {false, true}) {
    NetworkWriter w;
    const Tensor x = w.input({2, 3, 5, 4});
    const Tensor scale = scale_of(w, x);
    w.output(w.convolution(scale_first ? product(w, scale, x) : product(w, x, scale), 4, 1));
    run(w, fuse_input_scale);
    EXPECT_EQ(ops(), "convolution of scaled");
    EXPECT_EQ(graph.ops[0].operands[0].memory, x.memory);
    EXPECT_EQ(graph.ops[0].operands[2].memory, scale.memory);
  }
}

TEST_F(FuseInputScale, BesideABiasAndAnAddend) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3, 5, 4});
  const Tensor scale = scale_of(w, x);
  const Tensor addend = w.input({2, 4, 5, 4});
  w.output(w.op(Convolution{.bias = true, .epilogue = {.add = true, .last = kRelu}},
                {product(w, x, scale), w.constant({4, 3, 1, 1}), w.constant({4}), addend},
                {2, 4, 5, 4}));
  run(w, fuse_input_scale);
  EXPECT_EQ(ops(), "convolution of scaled add relu");
  EXPECT_EQ(graph.ops[0].operands[3].memory, scale.memory);
  EXPECT_EQ(graph.ops[0].operands[4].memory, addend.memory);
}

TEST_F(FuseInputScale, OneScaleForAllImagesOrChannels) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3, 5, 4});
  w.output(w.convolution(product(w, x, w.over_channels(w.input({3}), x)), 4, 1));
  Tensor by_image = w.input({2});
  by_image.desc.sizes = x.desc.sizes;
  by_image.desc.strides = {1, 0, 0, 0};
  w.output(w.convolution(product(w, x, by_image), 4, 1));
  run(w, fuse_input_scale);
  EXPECT_EQ(ops(), "convolution of scaled, convolution of scaled");
}

TEST_F(FuseInputScale, OfOnePixel) {
  NetworkWriter w;
  w.output(w.convolution(product(w, w.input({2, 3, 1, 1}), w.input({2, 3, 1, 1})), 4, 1));
  run(w, fuse_input_scale);
  EXPECT_EQ(ops(), "convolution of scaled");
}

// mul, mul, convolution -> mul, convolution of scaled
TEST_F(FuseInputScale, NotTwice) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3, 5, 4});
  const Tensor once = product(w, x, scale_of(w, x));
  w.output(w.convolution(product(w, once, scale_of(w, x)), 4, 1));
  run(w, fuse_input_scale);
  EXPECT_EQ(ops(), "mul, convolution of scaled");
}

TEST_F(FuseInputScale, NotIfOthersReadItOrItIsAnOutput) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3, 5, 4});
  const Tensor a = product(w, x, scale_of(w, x));
  w.output(w.convolution(a, 4, 1));
  w.output(w.convolution(a, 4, 1));
  const Tensor b = product(w, x, scale_of(w, x));
  w.output(b);
  w.output(w.convolution(b, 4, 1));
  const Tensor c = product(w, x, scale_of(w, x));  // it is the addend, too
  w.output(
      w.op(Convolution{.epilogue = {.add = true}}, {c, w.constant({3, 3, 1, 1}), c}, {2, 3, 5, 4}));
  run(w, fuse_input_scale);
  EXPECT_EQ(ops(), "mul, convolution, convolution, mul, convolution, mul, convolution add");
}

TEST_F(FuseInputScale, NotAFactorPerPixelOrElement) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3, 5, 4});
  Tensor by_pixel = w.input({2, 1, 5, 4});
  by_pixel.desc.sizes[1] = 3;
  by_pixel.desc.strides[1] = 0;
  w.output(w.convolution(product(w, x, by_pixel), 4, 1));
  w.output(w.convolution(product(w, scale_of(w, x), by_pixel), 4, 1));
  Tensor by_row = w.input({2, 3, 5, 1});
  by_row.desc.sizes[3] = 4;
  by_row.desc.strides[3] = 0;
  w.output(w.convolution(product(w, x, by_row), 4, 1));
  w.output(w.convolution(product(w, x, w.input({2, 3, 5, 4})), 4, 1));
  run(w, fuse_input_scale);
  EXPECT_EQ(ops(), "mul, convolution, mul, convolution, mul, convolution, mul, convolution");
}

TEST_F(FuseInputScale, NotOtherConvolutions) {
  const std::vector<std::pair<int64_t, Convolution>> others = {
      {3, {}},
      {3, {.padding = {1, 1}}},
      {1, {.stride = {2, 2}}},
      {1, {.padding = {1, 1}}},
      {1, {.groups = 2}},
      {1, {.groups = 4}},
  };
  for (const auto& [kernel, attributes] : others) {
    NetworkWriter w;
    const Tensor x = w.input({2, 4, 5, 4});
    w.output(w.convolution(product(w, x, scale_of(w, x)), 4, kernel, attributes));
    run(w, fuse_input_scale);
    EXPECT_EQ(graph.ops.size(), 2u) << ops();
  }
}

TEST_F(FuseInputScale, NotAPartOfTheImageOrAnotherOp) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3, 5, 4});
  Tensor part = product(w, x, scale_of(w, x));
  part.desc.sizes[2] -= 1;
  w.output(w.convolution(part, 4, 1));
  w.output(w.convolution(w.binary(ChainOp::kAdd, x, scale_of(w, x)), 4, 1));
  w.output(w.convolution(w.binary(ChainOp::kDiv, x, scale_of(w, x)), 4, 1));
  run(w, fuse_input_scale);
  EXPECT_EQ(ops(), "mul, convolution, add, convolution, div, convolution");
}

TEST_F(FuseInputScale, NotWhereAFactorChangesInBetween) {
  for (bool scale_changes : {false, true}) {
    NetworkWriter w;
    const Tensor x = w.scaled(w.input({2, 3, 5, 4}), 2);
    const Tensor s = w.scaled(w.input({2, 3, 1, 1}), 2);
    const Tensor y = product(w, x, w.over_pixels(s, x));
    w.framework("aten::mul_", {scale_changes ? s : x}, {1});
    w.output(w.convolution(y, 4, 1));
    graph = w.finish();
    graph.ops[3].operands[0].writes = true;
    relink(graph);
    fuse_input_scale(graph);
    EXPECT_EQ(ops(), "mul_scalar, mul_scalar, mul, aten::mul_, convolution");
  }
}

}  // namespace
}  // namespace nimble::testing
