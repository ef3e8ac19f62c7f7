#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "nimble/graph/dump.h"
#include "nimble/graph/validate.h"
#include "nimble/passes/chain_steps.h"
#include "nimble/passes/test_program.h"

// Layers as an importer writes them, and what every test of a pass checks.
namespace nimble::testing {

inline const Activation kRelu{ActivationKind::kRelu};

class NetworkWriter : public ProgramWriter {
 public:
  Tensor activation(const Tensor& x, const Activation& activation) {
    return op(Chain{1, {activation_step(activation, 0)}, {1}}, {x}, x.desc.sizes);
  }
  Tensor relu(const Tensor& x) { return activation(x, kRelu); }
  Tensor scaled(const Tensor& x, float value) {
    return op(Chain{1, {scalar_step(ChainOp::kMulScalar, 0, value)}, {1}}, {x}, x.desc.sizes);
  }
  Tensor add(const Tensor& x, const Tensor& y) { return binary(ChainOp::kAdd, x, y); }
  Tensor binary(ChainOp step, const Tensor& x, const Tensor& y) {
    return op(Chain{2, {chain_step(step, 0, 1)}, {2}}, {x, y}, x.desc.sizes);
  }

  // `far` is added to the output's size: what padding at the end gives.
  Tensor convolution(const Tensor& x, int64_t channels, int64_t kernel, Convolution attributes = {},
                     std::array<int64_t, 2> far = {0, 0}) {
    const auto& in = x.desc.sizes;
    std::vector<Tensor> inputs = {x,
                                  constant({channels, in[1] / attributes.groups, kernel, kernel})};
    if (attributes.bias) inputs.push_back(constant({channels}));
    std::vector<int64_t> sizes = {in[0], channels, 0, 0};
    for (size_t d : {0, 1})
      sizes[2 + d] = (in[2 + d] + 2 * attributes.padding[d] + far[d] -
                      attributes.dilation[d] * (kernel - 1) - 1) /
                         attributes.stride[d] +
                     1;
    return op(attributes, inputs, sizes);
  }
  Tensor depthwise(const Tensor& x, int64_t kernel, int64_t stride = 1) {
    return convolution(x, x.desc.sizes[1], kernel,
                       {.stride = {stride, stride},
                        .padding = {kernel / 2, kernel / 2},
                        .groups = x.desc.sizes[1]});
  }

  // In eval mode: two chains on constants, and one on the image.
  Tensor batch_norm(const Tensor& x) {
    const int64_t channels = x.desc.sizes[1];
    const Tensor gamma = constant({channels});
    const Tensor beta = constant({channels});
    const Tensor mean = constant({channels});
    const Tensor variance = constant({channels});
    const Tensor scale = op(Chain{2,
                                  {scalar_step(ChainOp::kAddScalar, 1, 1e-3f),
                                   chain_step(ChainOp::kRsqrt, 2), chain_step(ChainOp::kMul, 0, 3)},
                                  {4}},
                            {gamma, variance}, {channels});
    const Tensor shift =
        op(Chain{3, {chain_step(ChainOp::kMul, 1, 2), chain_step(ChainOp::kSub, 0, 3)}, {4}},
           {beta, mean, scale}, {channels});
    return by_channel(x, scale, shift);
  }
  Tensor by_channel(const Tensor& x, const Tensor& scale, const Tensor& shift) {
    return op(Chain{3, {chain_step(ChainOp::kMulAdd, 0, 1, 2)}, {3}},
              {x, over_channels(scale, x), over_channels(shift, x)}, x.desc.sizes);
  }
  // Squeeze and excitation: times a number per image and channel that the image itself gives.
  Tensor excited(const Tensor& x, bool scale_first = false) {
    const int64_t channels = x.desc.sizes[1];
    Tensor scale = op(AdaptivePool{}, {x}, {x.desc.sizes[0], channels, 1, 1});
    scale = activation(convolution(scale, channels, 1), {ActivationKind::kSigmoid});
    scale = over_pixels(scale, x);
    const std::vector<Tensor> factors = scale_first ? std::vector{scale, x} : std::vector{x, scale};
    return binary(ChainOp::kMul, factors[0], factors[1]);
  }
  // [N, C, 1, 1] seen with the sizes of an image.
  static Tensor over_pixels(Tensor scale, const Tensor& image) {
    scale.desc.sizes = image.desc.sizes;
    scale.desc.strides[2] = scale.desc.strides[3] = 0;
    return scale;
  }
  // A vector seen with the sizes of an image.
  static Tensor over_channels(Tensor vector, const Tensor& image) {
    vector.desc.sizes = image.desc.sizes;
    vector.desc.strides.assign(image.desc.sizes.size(), 0);
    vector.desc.strides[1] = 1;
    return vector;
  }

  Tensor pool(const Tensor& x, Pool attributes) {
    std::vector<int64_t> sizes = x.desc.sizes;
    for (size_t d : {0, 1})
      sizes[2 + d] = (sizes[2 + d] + attributes.padding[d] + attributes.far_padding[d] -
                      attributes.dilation[d] * (attributes.kernel[d] - 1) - 1) /
                         attributes.stride[d] +
                     1;
    return op(attributes, {x}, sizes);
  }
  static Pool pool3x3(Pool::Kind kind, int64_t stride = 1) {
    return {.kind = kind,
            .kernel = {3, 3},
            .stride = {stride, stride},
            .padding = {1, 1},
            .far_padding = {1, 1},
            .count_include_pad = false};
  }

  // x [..., K] times a constant [K, n].
  Tensor linear(const Tensor& x, int64_t n, bool bias = false) {
    std::vector<int64_t> sizes = x.desc.sizes;
    const int64_t k = sizes.back();
    sizes.back() = n;
    std::vector<int64_t> weight_sizes(sizes.size(), 1);
    weight_sizes[sizes.size() - 2] = k;
    weight_sizes.back() = n;
    std::vector<Tensor> inputs = {x, constant(weight_sizes)};
    if (bias) inputs.push_back(over_last(constant({n}), sizes));
    return op(MatMul{.constant_b = true, .bias = bias}, inputs, sizes);
  }
  static Tensor over_last(Tensor vector, const std::vector<int64_t>& sizes) {
    vector.desc.sizes = sizes;
    vector.desc.strides.assign(sizes.size(), 0);
    vector.desc.strides.back() = 1;
    return vector;
  }

  Tensor pad(const Tensor& x, std::vector<int64_t> begin, const std::vector<int64_t>& end,
             float value = 0) {
    std::vector<int64_t> sizes = x.desc.sizes;
    for (size_t d = 0; d < sizes.size(); ++d) sizes[d] += begin[d] + end[d];
    return op(Pad{std::move(begin), value}, {x}, sizes);
  }
  Tensor concatenation(const std::vector<Tensor>& inputs, int64_t dim = 1) {
    std::vector<int64_t> sizes = inputs[0].desc.sizes;
    sizes[dim] = 0;
    for (const Tensor& t : inputs) sizes[dim] += t.desc.sizes[dim];
    return op(Concatenation{dim}, inputs, sizes);
  }

  static Tensor reshape(Tensor t, const std::vector<int64_t>& sizes) {
    t.desc = reshaped(t.desc, sizes).value();
    return t;
  }
};

// Concatenations have no plain loops: the same graph with copies.
inline Graph without_concatenations(Graph graph) {
  std::vector<Op> ops;
  for (Op& op : graph.ops) {
    const auto* concatenation = attributes_of<Concatenation>(op);
    if (concatenation == nullptr) {
      ops.push_back(std::move(op));
      continue;
    }
    TensorDesc slice = graph.desc_of(op.operands.back());
    for (size_t i = 0; i + 1 < op.operands.size(); ++i) {
      const size_t dim = concatenation->dim;
      slice.sizes[dim] = graph.desc_of(op.operands[i]).sizes[dim];
      Op copy = op;
      copy.attributes = Copy{};
      copy.operands = {op.operands[i], writing(op.operands.back().memory, add_view(graph, slice))};
      ops.push_back(std::move(copy));
      slice.offset += slice.sizes[dim] * slice.strides[dim];
    }
  }
  graph.ops = std::move(ops);
  return graph;
}

// A graph before a pass, to be held against what the pass leaves.
class PassTest : public ::testing::Test {
 protected:
  template <class Pass>
  void run(NetworkWriter& writer, const Pass& pass) {
    graph = writer.finish();
    const Graph before = graph;
    pass(graph);
    EXPECT_EQ(validate_graph(graph), std::vector<std::string>()) << dump_text(graph);
    expect_same_results(before);
  }

  void expect_same_results(const Graph& before, float tolerance = 1e-4f) {
    const auto expected = evaluate(without_concatenations(before));
    const auto actual = evaluate(without_concatenations(graph));
    ASSERT_EQ(expected.size(), actual.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(expected[i].size(), actual[i].size());
      float largest = 1;
      for (float value : expected[i]) largest = std::max(largest, std::abs(value));
      for (size_t k = 0; k < expected[i].size(); ++k)
        ASSERT_NEAR(expected[i][k], actual[i][k], tolerance * largest)
            << "output " << i << " element " << k << "\nbefore:\n"
            << dump_text(before) << "after:\n"
            << dump_text(graph);
    }
  }

  // What the ops are, in program order: "convolution relu, max pool 3x3".
  std::string ops() const {
    std::string text;
    for (const Op& op : graph.ops) {
      if (!text.empty()) text += ", ";
      text += op.attributes ? describe(*op.attributes) : op.name;
    }
    return text;
  }

  Graph graph;
};

}  // namespace nimble::testing
