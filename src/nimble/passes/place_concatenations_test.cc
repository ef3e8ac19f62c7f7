#include "nimble/passes/place_concatenations.h"

#include <gtest/gtest.h>

#include "nimble/graph/dump.h"
#include "nimble/graph/validate.h"
#include "nimble/passes/choose_layout.h"
#include "nimble/passes/images.h"
#include "nimble/passes/test_program.h"
#include "nimble/passes/test_values.h"

namespace nimble {
namespace {

using testing::ProgramWriter;
using testing::Tensor;

std::vector<int64_t> image(int64_t channels) {
  return {1, channels, 5, 6};
}

Tensor convolve(ProgramWriter& w, const Tensor& x, int64_t channels) {
  return w.op(Convolution{}, {x, w.constant({channels, x.desc.sizes[1], 1, 1})}, image(channels));
}

Tensor concatenate(ProgramWriter& w, const std::vector<Tensor>& pieces, int64_t dim = 1) {
  std::vector<int64_t> sizes = pieces.front().desc.sizes;
  sizes[dim] = 0;
  for (const Tensor& piece : pieces) sizes[dim] += piece.desc.sizes[dim];
  return w.op(Concatenation{dim}, pieces, sizes);
}

Tensor pool(ProgramWriter& w, const Tensor& x) {
  return w.op(AdaptivePool{}, {x}, {1, x.desc.sizes[1], 1, 1});
}

Graph placed(Graph graph, bool lay_out = true) {
  const auto before = testing::trace_values(graph);
  const Graph recorded = graph;
  if (lay_out) choose_layout(graph);
  place_concatenations(graph);
  EXPECT_EQ(validate_graph(graph), std::vector<std::string>()) << dump_text(graph);
  EXPECT_EQ(testing::trace_values(graph), before) << dump_text(graph);
  for (const Op& op : graph.ops) {
    EXPECT_FALSE(attributes_of<Concatenation>(op));
    if (!lay_out) continue;
    for (size_t i : image_operands(graph, op))
      EXPECT_TRUE(has_channels_last(graph.desc_of(op.operands[i]))) << op.name;
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    EXPECT_EQ(graph.outputs[i].memory, recorded.outputs[i].memory);
    EXPECT_EQ(graph.outputs[i].view, recorded.outputs[i].view);
  }
  return graph;
}

size_t count_copies(const Graph& graph) {
  size_t copies = 0;
  for (const Op& op : graph.ops) copies += attributes_of<Copy>(op) != nullptr;
  return copies;
}

bool has_edge(const Graph& graph, size_t before, size_t after) {
  const Edge edge{OpId(before), OpId(after)};
  return std::find(graph.edges.begin(), graph.edges.end(), edge) != graph.edges.end();
}

TEST(PlaceConcatenations, PiecesAreWrittenInPlaceAndInAnyOrder) {
  ProgramWriter w;
  const Tensor x = w.input({1, 3, 5, 6});
  const Tensor a = convolve(w, x, 8);
  const Tensor b = convolve(w, x, 5);
  const Tensor c = convolve(w, a, 2);  // reads a where it is now
  w.output(pool(w, concatenate(w, {a, b, c})));
  const Graph graph = placed(w.finish());
  ASSERT_EQ(graph.ops.size(), 4U);
  EXPECT_FALSE(has_edge(graph, 0, 1));
  EXPECT_TRUE(has_edge(graph, 0, 2));
  EXPECT_FALSE(has_edge(graph, 1, 2));
  for (size_t i : {0, 1, 2}) EXPECT_TRUE(has_edge(graph, i, 3));
}

TEST(PlaceConcatenations, TheSamePieceTwiceIsCopiedOnce) {
  ProgramWriter w;
  const Tensor a = convolve(w, w.input({1, 3, 5, 6}), 8);
  w.output(pool(w, concatenate(w, {a, a})));
  EXPECT_EQ(count_copies(placed(w.finish())), 1U);
}

TEST(PlaceConcatenations, APieceOfTwoIsPlacedInTheLater) {
  ProgramWriter w;
  const Tensor x = w.input({1, 3, 5, 6});
  const Tensor a = convolve(w, x, 8);
  const Tensor b = convolve(w, x, 4);
  const Tensor first = pool(w, concatenate(w, {a, b}));
  const Tensor second = pool(w, concatenate(w, {b, a}));
  w.output(first);
  w.output(second);
  EXPECT_EQ(count_copies(placed(w.finish())), 2U);
}

TEST(PlaceConcatenations, PrefixesOfALaterOneAreViews) {
  ProgramWriter w;  // as DenseNet has it
  std::vector<Tensor> pieces = {convolve(w, w.input({1, 3, 5, 6}), 1)};
  for (int layer = 0; layer < 4; ++layer)
    pieces.push_back(convolve(w, concatenate(w, pieces), 4 + layer));
  w.output(pool(w, concatenate(w, pieces)));
  const Graph graph = placed(w.finish());
  EXPECT_EQ(count_copies(graph), 0U);
  EXPECT_EQ(graph.ops.size(), 6U);
}

TEST(PlaceConcatenations, APieceMayBeAConcatenation) {
  ProgramWriter w;
  const Tensor x = w.input({1, 3, 5, 6});
  Tensor all = convolve(w, x, 8);
  for (int layer = 0; layer < 4; ++layer)
    all = concatenate(w, {convolve(w, all, 4), all, convolve(w, x, 3)});
  w.output(pool(w, all));
  const Graph graph = placed(w.finish());
  EXPECT_EQ(count_copies(graph), 0U);
  EXPECT_EQ(graph.ops.size(), 10U);
}

TEST(PlaceConcatenations, SlicesOfTheResultAreViews) {
  ProgramWriter w;
  const Tensor x = w.input({1, 3, 5, 6});
  const Tensor all = concatenate(w, {convolve(w, x, 8), convolve(w, x, 8)});
  Tensor middle = all;
  middle.desc.sizes[1] = 8;
  middle.desc.offset = 4 * 30;
  w.output(pool(w, convolve(w, middle, 5)));
  EXPECT_EQ(count_copies(placed(w.finish())), 0U);
}

TEST(PlaceConcatenations, WhatMustStayIsCopied) {
  ProgramWriter w;
  const Tensor x = w.input({1, 3, 5, 6});
  const Tensor constant = w.constant(image(6));
  const Tensor theirs = w.framework("aten::unknown", {x}, image(7));
  const Tensor output = w.op(Softmax{.dim = 1}, {x}, image(3));
  const Tensor read_by_them = w.op(Softmax{.dim = 1}, {theirs}, image(7));
  const Tensor sliced = w.op(Softmax{.dim = 1}, {constant}, image(6));
  Tensor slice = sliced;
  slice.desc.sizes[1] = 5;
  w.output(output);
  w.output(w.framework("aten::unknown", {read_by_them}, {3}));
  const Tensor all = concatenate(w, {x, constant, theirs, output, read_by_them, slice});
  w.output(w.op(Softmax{.dim = 1}, {all}, all.desc.sizes));
  EXPECT_EQ(count_copies(placed(w.finish())), 6U);
}

TEST(PlaceConcatenations, UpdatedPiecesAndResultsAreCopied) {
  const auto build = [](bool update_piece) {
    ProgramWriter w;
    const Tensor x = w.input({1, 3, 5, 6});
    const Tensor a = w.op(Softmax{.dim = 1}, {x}, image(3));
    const Tensor b = w.op(Softmax{.dim = 2}, {x}, image(3));
    const Tensor all = concatenate(w, {a, b});
    const Tensor& target = update_piece ? a : all;
    w.op(LayerNorm{}, {target}, target.desc.sizes);
    w.output(w.op(Softmax{.dim = 3}, {all}, all.desc.sizes));
    w.output(w.op(Softmax{.dim = 3}, {a}, a.desc.sizes));
    Graph graph = w.finish();
    graph.ops[3].operands[1] = writing(target.memory, graph.ops[3].operands[0].view);
    relink(graph);
    return graph;
  };
  EXPECT_EQ(count_copies(placed(build(true))), 1U);
  EXPECT_EQ(count_copies(placed(build(false))), 2U);
}

TEST(PlaceConcatenations, AnOutputKeepsItsMemory) {
  ProgramWriter w;
  const Tensor x = w.input({2, 3, 5, 6});
  const std::vector<int64_t> sizes = x.desc.sizes;
  const Tensor a = w.op(Softmax{.dim = 1}, {x}, sizes);
  const Tensor b = w.op(Softmax{.dim = 2}, {a}, sizes);
  w.output(concatenate(w, {a, b}, 1));
  const Graph graph = placed(w.finish());
  EXPECT_EQ(graph.ops.size(), 2U);
}

TEST(PlaceConcatenations, AnyDimOfAnyRank) {
  for (int64_t dim : {0, 1, 2}) {
    ProgramWriter w;
    const Tensor x = w.input({2, 3, 4});
    const Tensor a = w.op(Softmax{.dim = 1}, {x}, x.desc.sizes);
    const Tensor b = w.op(Softmax{.dim = 2}, {a}, x.desc.sizes);
    const Tensor all = concatenate(w, {a, b}, dim);
    w.output(w.op(LayerNorm{}, {all}, all.desc.sizes));
    EXPECT_EQ(placed(w.finish()).ops.size(), 3U);
  }
}

TEST(PlaceConcatenations, ImagesSideBySideHaveGapsBetweenTheirRows) {
  ProgramWriter w;
  const Tensor x = w.input({1, 3, 5, 6});
  w.output(pool(w, concatenate(w, {convolve(w, x, 8), convolve(w, x, 8)}, 2)));
  w.output(pool(w, concatenate(w, {convolve(w, x, 8), convolve(w, x, 8)}, 3)));
  const Tensor norm = w.op(GroupNorm{}, {convolve(w, x, 8)}, image(8));  // cannot have that
  w.output(pool(w, concatenate(w, {convolve(w, x, 8), norm}, 3)));
  EXPECT_EQ(count_copies(placed(w.finish())), 1U);
}

TEST(PlaceConcatenations, PiecesSeenOtherwiseThanWrittenMove) {
  ProgramWriter w;  // the heads of a detector
  const Tensor x = w.input({1, 3, 5, 6});
  std::vector<Tensor> pieces;
  for (int64_t channels : {8, 12}) {
    Tensor head = convolve(w, x, channels);
    head.desc = {
        .dtype = x.desc.dtype, .sizes = {1, 5, 6, channels}, .strides = {30 * channels, 6, 1, 30}};
    Tensor rows = w.op(Copy{}, {head}, {1, 5, 6, channels});
    rows.desc = row_major(x.desc.dtype, {1, 30 * channels / 4, 4});
    pieces.push_back(rows);
  }
  w.output(concatenate(w, pieces));
  const Graph graph = placed(w.finish());
  EXPECT_EQ(count_copies(graph), 2U);  // those it had
  EXPECT_EQ(graph.ops.size(), 4U);
}

TEST(PlaceConcatenations, EmptyPiecesVanish) {
  ProgramWriter w;
  const Tensor x = w.input({1, 3, 5, 6});
  const Tensor empty = w.op(Softmax{}, {w.input({0})}, {0});
  const Tensor a = w.op(Softmax{.dim = 1}, {x}, image(3));
  w.output(w.op(Concatenation{1}, {empty, a}, image(3)));
  EXPECT_EQ(placed(w.finish()).ops.size(), 2U);
}

TEST(PlaceConcatenations, RandomProgramsKeepTheirMeaning) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    ProgramWriter w;
    std::vector<Tensor> tensors = {w.input(image(3)), w.constant(image(2))};
    for (int i = 0; i < 14; ++i) {
      const auto any = [&] {
        Tensor t = tensors[tensors.size() - 1 - random() % std::min<size_t>(tensors.size(), 6)];
        const int64_t channels = t.desc.sizes[1];
        if (random() % 6 == 0 && channels > 1) {
          t.desc.sizes[1] = 1 + random() % (channels - 1);
          t.desc.offset += (random() % (channels - t.desc.sizes[1] + 1)) * t.desc.strides[1];
        }
        return t;
      };
      const Tensor x = any();
      switch (random() % 5) {
        case 0:
        case 1: {
          std::vector<Tensor> pieces;
          int64_t channels = 0;
          for (size_t n = 1 + random() % 4; pieces.size() < n && channels < 100;) {
            pieces.push_back(any());
            channels += pieces.back().desc.sizes[1];
          }
          tensors.push_back(concatenate(w, pieces));
          break;
        }
        case 2:
          tensors.push_back(w.op(Softmax{.dim = 1}, {x}, x.desc.sizes));
          break;
        case 3:
          tensors.push_back(convolve(w, x, 1 + random() % 6));
          break;
        default:
          tensors.push_back(random() % 4 ? w.op(Copy{}, {x}, x.desc.sizes)
                                         : w.framework("aten::unknown", {x}, x.desc.sizes));
      }
      if (random() % 8 == 0) w.output(tensors.back());
    }
    w.output(tensors.back());
    placed(w.finish(), random() % 2);
  }
}

}  // namespace
}  // namespace nimble
