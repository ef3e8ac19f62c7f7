#include "nimble/passes/choose_layout.h"

#include <gtest/gtest.h>

#include "nimble/graph/dump.h"
#include "nimble/graph/validate.h"
#include "nimble/passes/images.h"
#include "nimble/passes/test_program.h"
#include "nimble/passes/test_values.h"

namespace nimble {
namespace {

using testing::ProgramWriter;
using testing::Tensor;

const std::vector<int64_t> kImage = {1, 8, 5, 6};

Tensor convolve(ProgramWriter& w, const Tensor& x, int64_t channels) {
  const Tensor weight = w.constant({channels, x.desc.sizes[1], 1, 1});
  return w.op(Convolution{}, {x, weight},
              {x.desc.sizes[0], channels, x.desc.sizes[2], x.desc.sizes[3]});
}

Chain chain_of(int inputs, const ChainStep& step) {
  return {.inputs = inputs, .steps = {step}, .outputs = {inputs}};
}

Chain relu() {
  ChainStep step;
  step.op = ChainOp::kActivation;
  step.x = 0;
  step.activation.kind = ActivationKind::kRelu;
  return chain_of(1, step);
}

Chain add(int inputs = 2) {
  ChainStep step;
  step.x = 0;
  step.y = 1;
  return chain_of(inputs, step);
}

TensorDesc viewed(TensorDesc desc, std::vector<int64_t> sizes) {
  return *reshaped(desc, sizes);
}

// Runs the pass, and checks what holds for every graph.
Graph laid_out(Graph graph) {
  const auto before = testing::trace_values(graph);
  const Graph recorded = graph;
  choose_layout(graph);
  EXPECT_EQ(validate_graph(graph), std::vector<std::string>()) << dump_text(graph);
  EXPECT_EQ(testing::trace_values(graph), before) << dump_text(graph);
  for (const Op& op : graph.ops) {
    for (size_t i : image_operands(graph, op)) {
      const TensorDesc& desc = graph.desc_of(op.operands[i]);
      EXPECT_TRUE(has_channels_last(desc)) << op.name << " operand " << i;
      EXPECT_EQ(as_image(desc).value_or(desc), desc) << op.name << " operand " << i;
    }
    if (op.attributes) continue;
    for (const Op& old : recorded.ops) {
      if (old.call != op.call) continue;
      for (size_t i = 0; i < op.operands.size(); ++i)
        EXPECT_EQ(recorded.desc_of(old.operands[i]), graph.desc_of(op.operands[i]));
    }
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    EXPECT_EQ(graph.outputs[i].memory, recorded.outputs[i].memory);
    EXPECT_EQ(graph.outputs[i].view, recorded.outputs[i].view);
  }
  Graph again = graph;  // everything lies well now
  choose_layout(again);
  EXPECT_EQ(dump_text(again), dump_text(graph));
  return graph;
}

size_t count_copies(const Graph& graph) {
  size_t copies = 0;
  for (const Op& op : graph.ops) copies += attributes_of<Copy>(op) != nullptr;
  return copies;
}

bool is_channels_last(const Graph& graph, const Operand& operand) {
  const TensorDesc& desc = graph.desc_of(operand);
  return as_image(desc).has_value() && desc.sizes.size() == 4;
}

TEST(ChooseLayout, TheFirstConvolutionReadsTheCallersImageAndOnlyTheOutputIsCopied) {
  ProgramWriter w;
  Tensor x = w.input({1, 3, 5, 6});
  x = w.op(relu(), {convolve(w, x, 8)}, kImage);
  w.output(convolve(w, x, 7));
  const Graph graph = laid_out(w.finish());
  ASSERT_EQ(graph.ops.size(), 4U);
  EXPECT_FALSE(is_channels_last(graph, graph.ops[0].operands[0]));
  EXPECT_TRUE(is_channels_last(graph, graph.ops[0].operands[2]));
  EXPECT_TRUE(is_channels_last(graph, graph.ops[1].operands[0]));
  EXPECT_TRUE(is_channels_last(graph, graph.ops[1].operands[1]));
  EXPECT_TRUE(attributes_of<Copy>(graph.ops[3]));
}

TEST(ChooseLayout, AnInputOfManyChannelsIsCopiedOnceForAllReaders) {
  ProgramWriter w;
  const Tensor x = w.input(kImage);
  const Tensor a = convolve(w, x, 8);
  const Tensor b = convolve(w, x, 8);
  const Tensor sum = w.op(add(), {a, b}, kImage);
  w.output(w.op(Reduce{.dims = {2, 3}}, {sum}, {1, 8, 1, 1}));
  const Graph graph = laid_out(w.finish());
  EXPECT_EQ(count_copies(graph), 1U);
  EXPECT_EQ(graph.ops.size(), 5U);
}

TEST(ChooseLayout, AChannelsLastInputNeedsNoCopy) {
  ProgramWriter w;
  Tensor x = w.input(kImage);
  x.desc = channels_last(x.desc.dtype, kImage);
  const Tensor y = w.op(relu(), {convolve(w, x, 8)}, kImage);
  w.output(w.op(AdaptivePool{}, {y}, {1, 8, 1, 1}));
  EXPECT_EQ(count_copies(laid_out(w.finish())), 0U);
}

TEST(ChooseLayout, ImagesThatLieWellStay) {
  ProgramWriter w;
  Tensor x = w.input(kImage);
  x.desc = channels_last(x.desc.dtype, kImage);
  Tensor y = convolve(w, x, 8);
  w.output(y);
  Graph graph = w.finish();
  graph.views[graph.ops[0].operands[2].view.index].desc = x.desc;
  graph.views[graph.outputs[0].view.index].desc = x.desc;
  const std::string before = dump_text(graph);
  const size_t views = graph.views.size();
  choose_layout(graph);
  EXPECT_EQ(dump_text(graph), before);
  EXPECT_EQ(graph.views.size(), views);
}

TEST(ChooseLayout, AGraphWithoutImageOpsStays) {
  ProgramWriter w;
  const Tensor x = w.input(kImage);
  Tensor permuted = x;
  permuted.desc = channels_last(x.desc.dtype, kImage);
  const Tensor y = w.op(add(), {x, permuted}, kImage);
  w.output(w.op(Softmax{}, {y}, kImage));
  Graph graph = w.finish();
  const size_t views = graph.views.size();
  choose_layout(graph);
  EXPECT_EQ(graph.views.size(), views);
  EXPECT_EQ(graph.ops.size(), 2U);
}

TEST(ChooseLayout, AFlattenedImageIsCopiedBack) {
  ProgramWriter w;
  const Tensor x = convolve(w, w.input({1, 3, 5, 6}), 8);
  Tensor flat = x;
  flat.desc = viewed(x.desc, {1, 240});
  const Tensor a = w.op(MatMul{}, {flat, w.constant({240, 4})}, {1, 4});
  const Tensor b = w.op(MatMul{}, {flat, w.constant({240, 4})}, {1, 4});
  w.output(w.op(add(), {a, b}, {1, 4}));
  const Graph graph = laid_out(w.finish());
  EXPECT_EQ(count_copies(graph), 1U);
  EXPECT_TRUE(attributes_of<Copy>(graph.ops[1]));
}

TEST(ChooseLayout, PixelsAsRowsAndOnePixelNeedNoCopy) {
  ProgramWriter w;
  const Tensor x = convolve(w, w.input({1, 3, 5, 6}), 8);
  Tensor rows = x;
  rows.desc = {.dtype = x.desc.dtype, .sizes = {1, 30, 8}, .strides = {240, 1, 30}};
  w.output(w.op(LayerNorm{}, {rows}, {1, 30, 8}));
  Tensor pooled = w.op(AdaptivePool{}, {x}, {1, 8, 1, 1});
  pooled.desc = viewed(pooled.desc, {1, 8});
  w.output(w.op(MatMul{}, {pooled, w.constant({8, 4})}, {1, 4}));
  EXPECT_EQ(count_copies(laid_out(w.finish())), 0U);
}

TEST(ChooseLayout, OpsOfTheFrameworkKeepTheirLayouts) {
  ProgramWriter w;
  const Tensor x = convolve(w, w.input({1, 3, 5, 6}), 8);
  const Tensor y = w.framework("aten::unknown", {x}, kImage);
  const Tensor z = convolve(w, y, 8);
  w.output(w.framework("aten::other", {w.op(add(), {z, x}, kImage)}, {1, 4}));
  const Graph graph = laid_out(w.finish());
  EXPECT_EQ(count_copies(graph), 3U);  // x back, y forth, the sum back
}

TEST(ChooseLayout, AnElementwiseOpHasOneLayout) {
  ProgramWriter w;
  const Tensor x = convolve(w, w.input({1, 3, 5, 6}), 8);
  const Tensor y = w.framework("aten::unknown", {w.input({4})}, kImage);
  const Tensor constant = w.constant(kImage);
  Tensor scale = w.constant({8});
  scale.desc.sizes = kImage;
  scale.desc.strides = {0, 1, 0, 0};
  const Tensor sum = w.op(add(4), {x, y, constant, scale}, kImage);
  w.output(w.op(AdaptivePool{}, {sum}, {1, 8, 1, 1}));
  const Graph graph = laid_out(w.finish());
  EXPECT_EQ(count_copies(graph), 1U);
  EXPECT_EQ(graph.constant_ops.size(), 1U);
  const Op& op = graph.ops[3];
  ASSERT_TRUE(attributes_of<Chain>(op));
  for (size_t i : {0, 1, 2, 4}) EXPECT_TRUE(is_channels_last(graph, op.operands[i])) << i;
}

TEST(ChooseLayout, AChainOfTheFrameworksResultsKeepsTheirLayout) {
  ProgramWriter w;
  const Tensor y = w.framework("aten::unknown", {w.input({4})}, kImage);
  const Tensor z = w.op(relu(), {y}, kImage);
  w.output(z);
  w.output(w.op(AdaptivePool{}, {convolve(w, z, 8)}, {1, 8, 1, 1}));
  const Graph graph = laid_out(w.finish());
  EXPECT_EQ(count_copies(graph), 1U);
  EXPECT_FALSE(is_channels_last(graph, graph.ops[1].operands[1]));
}

TEST(ChooseLayout, AnUpdateInPlaceFollows) {
  ProgramWriter w;
  const Tensor x = convolve(w, w.input({1, 3, 5, 6}), 8);
  w.op(relu(), {x}, kImage);
  const Tensor after = convolve(w, x, 8);
  w.output(w.op(AdaptivePool{}, {after}, {1, 8, 1, 1}));
  Graph graph = w.finish();
  graph.ops[1].operands[1] = writing(x.memory, graph.ops[1].operands[0].view);
  relink(graph);
  EXPECT_EQ(count_copies(laid_out(std::move(graph))), 0U);
}

TEST(ChooseLayout, AnUpdateOfTheFrameworkEndsTheValidityOfACopy) {
  ProgramWriter w;
  const Tensor x = w.framework("aten::made", {w.input({4})}, kImage);
  const Tensor a = convolve(w, x, 8);
  w.framework("aten::changed_", {x}, kImage);
  const Tensor b = convolve(w, x, 8);
  w.output(w.op(AdaptivePool{}, {w.op(add(), {a, b}, kImage)}, {1, 8, 1, 1}));
  Graph graph = w.finish();
  graph.ops[2].operands[1] = writing(x.memory, graph.ops[2].operands[0].view);
  relink(graph);
  EXPECT_EQ(count_copies(laid_out(std::move(graph))), 2U);
}

TEST(ChooseLayout, ShuffledChannelsStayInPlaceOrder) {
  ProgramWriter w;
  const Tensor x = convolve(w, w.input({1, 3, 5, 6}), 16);
  Tensor groups = x;
  groups.desc = viewed(x.desc, {1, 2, 8, 5, 6});
  std::swap(groups.desc.sizes[1], groups.desc.sizes[2]);
  std::swap(groups.desc.strides[1], groups.desc.strides[2]);
  Tensor shuffled = w.op(Copy{}, {groups}, {1, 8, 2, 5, 6});
  shuffled.desc = viewed(shuffled.desc, {1, 16, 5, 6});
  Tensor half = shuffled;  // nobody sees the whole as an image
  half.desc.sizes[1] = 8;
  half.desc.offset = 8 * 30;
  w.output(w.op(AdaptivePool{}, {convolve(w, half, 8)}, {1, 8, 1, 1}));
  const Graph graph = laid_out(w.finish());
  EXPECT_EQ(count_copies(graph), 1U);  // the shuffle
  EXPECT_EQ(graph.desc_of(graph.ops[1].operands[1]).strides,
            (std::vector<int64_t>{480, 2, 1, 96, 16}));
}

TEST(ChooseLayout, ACropIsCopiedForTheOpThatNeedsIt) {
  ProgramWriter w;
  const Tensor x = convolve(w, w.input({1, 3, 5, 6}), 8);
  Tensor crop = x;
  crop.desc.sizes = {1, 8, 4, 5};
  crop.desc.offset = 7;
  const Tensor a = convolve(w, crop, 8);
  const Tensor b = w.op(relu(), {crop}, crop.desc.sizes);
  const Tensor c = w.op(GroupNorm{}, {crop}, crop.desc.sizes);
  const Tensor sum = w.op(add(), {w.op(add(), {a, b}, crop.desc.sizes), c}, crop.desc.sizes);
  w.output(w.op(AdaptivePool{}, {sum}, {1, 8, 1, 1}));
  const Graph graph = laid_out(w.finish());
  EXPECT_EQ(count_copies(graph), 1U);
  for (size_t i = 0; i < graph.ops.size(); ++i)
    EXPECT_TRUE(!attributes_of<GroupNorm>(graph.ops[i]) || attributes_of<Copy>(graph.ops[i - 1]));
}

TEST(ChooseLayout, ConcatenationsAndPaddingFollow) {
  ProgramWriter w;
  const Tensor image = w.input({1, 3, 5, 6});
  const Tensor a = convolve(w, image, 8);
  const Tensor b = w.op(Pad{.begin = {0, 0, 1, 1}}, {convolve(w, image, 4)}, {1, 4, 7, 8});
  const Tensor c = w.op(Pad{.begin = {0, 0, 1, 1}}, {a}, {1, 8, 7, 8});
  const Tensor both = w.op(Concatenation{1}, {b, c}, {1, 12, 7, 8});
  w.output(w.op(AdaptivePool{}, {both}, {1, 12, 1, 1}));
  EXPECT_EQ(count_copies(laid_out(w.finish())), 0U);
}

TEST(ChooseLayout, AnAddendIsAnImageToo) {
  ProgramWriter w;
  const Tensor addend = w.input(kImage);
  const Tensor x = w.input({1, 3, 5, 6});
  Convolution convolution;
  convolution.epilogue.add = true;
  const Tensor y = w.op(convolution, {x, w.constant({8, 3, 1, 1}), addend}, kImage);
  w.output(w.op(AdaptivePool{}, {y}, {1, 8, 1, 1}));
  EXPECT_EQ(count_copies(laid_out(w.finish())), 1U);
}

TEST(ChooseLayout, RandomProgramsKeepTheirMeaning) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    ProgramWriter w;
    std::vector<Tensor> tensors = {w.input(kImage), w.constant(kImage)};
    std::vector<std::pair<size_t, size_t>> in_place;
    size_t ops = 0;
    for (; ops < 12; ++ops) {
      const auto any = [&] {
        Tensor t = tensors[random() % tensors.size()];
        if (random() % 8 == 0) t.desc = channels_last(t.desc.dtype, kImage);  // as other elements
        return t;
      };
      switch (random() % 7) {
        case 0:
          tensors.push_back(convolve(w, any(), 8));
          break;
        case 1:
          tensors.push_back(w.op(add(), {any(), any()}, kImage));
          break;
        case 2:
          tensors.push_back(w.framework("aten::unknown", {any()}, kImage));
          break;
        case 3:
          tensors.push_back(w.op(Copy{}, {any()}, kImage));
          break;
        case 4:
          tensors.push_back(w.op(Softmax{.dim = 1}, {any()}, kImage));
          break;
        case 5: {
          Tensor a = any();
          Tensor b = any();
          a.desc.sizes[1] = 5;
          b.desc.sizes[1] = 3;
          tensors.push_back(w.op(Concatenation{1}, {a, b}, kImage));
          break;
        }
        default:
          tensors.push_back(w.op(relu(), {any()}, kImage));
          if (tensors[tensors.size() - 2].memory.index > 1)
            in_place.push_back({ops, tensors.size() - 2});
      }
      if (random() % 6 == 0) w.output(tensors.back());
    }
    w.output(tensors.back());
    Graph graph = w.finish();
    for (auto [op, tensor] : in_place) {
      if (random() % 2) continue;
      Operand& read = graph.ops[op].operands[0];
      read = reading(tensors[tensor].memory, read.view);
      graph.ops[op].operands[1] = writing(tensors[tensor].memory, read.view);
    }
    relink(graph);
    // What an update made nobody write is not read either, but for its old name.
    if (!validate_graph(graph).empty()) continue;
    laid_out(std::move(graph));
  }
}

}  // namespace
}  // namespace nimble
