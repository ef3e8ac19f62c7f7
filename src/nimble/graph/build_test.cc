#include "nimble/graph/build.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "nimble/graph/dump.h"
#include "nimble/graph/test_trace.h"
#include "nimble/graph/validate.h"

namespace nimble {
namespace {

using testing::TraceWriter;

bool has_edge(const Graph& graph, uint32_t before, uint32_t after) {
  return std::find(graph.edges.begin(), graph.edges.end(), Edge{OpId(before), OpId(after)}) !=
         graph.edges.end();
}

MemoryId memory_of(const Graph& graph, uint32_t op, size_t operand) {
  return graph.ops[op].operands[operand].memory;
}

TEST(BuildGraph, ReadWaitsForItsWriter) {
  TraceWriter w;
  const ViewId x = w.view(w.buffer(Role::kInput, 4));
  const ViewId y = w.view(w.buffer(Role::kIntermediate, 4));
  w.call("f", {x}, {y});
  w.call("g", {y}, {w.view(w.buffer(Role::kIntermediate, 4))});
  const Graph graph = build_graph(w.trace);
  EXPECT_TRUE(has_edge(graph, 0, 1));
  EXPECT_EQ(graph.values[graph.ops[1].operands[0].before.index].producer, OpId(0));
  EXPECT_TRUE(validate_graph(graph).empty());
}

TEST(BuildGraph, OverwritingAnIntermediateTakesNewMemoryAndWaitsForNobody) {
  TraceWriter w;
  const ViewId x = w.view(w.buffer(Role::kInput, 4));
  const ViewId y = w.view(w.buffer(Role::kIntermediate, 4));
  w.call("write", {x}, {y});
  w.call("read", {y}, {w.view(w.buffer(Role::kIntermediate, 4))});
  w.call("write again", {x}, {y});
  const Graph graph = build_graph(w.trace);
  EXPECT_NE(memory_of(graph, 0, 1), memory_of(graph, 2, 1));
  EXPECT_FALSE(has_edge(graph, 1, 2));
  EXPECT_FALSE(has_edge(graph, 0, 2));
}

TEST(BuildGraph, OverwritingWhatTheUserOwnsStaysInPlaceAndWaitsForReaders) {
  TraceWriter w;
  const ViewId x = w.view(w.buffer(Role::kInput, 4));
  const ViewId parameter = w.view(w.buffer(Role::kExternal, 4));
  w.call("read", {parameter}, {w.view(w.buffer(Role::kIntermediate, 4))});
  w.call("write", {x}, {parameter});
  const Graph graph = build_graph(w.trace);
  EXPECT_EQ(memory_of(graph, 0, 0), memory_of(graph, 1, 1));
  EXPECT_TRUE(has_edge(graph, 0, 1));
}

TEST(BuildGraph, UpdateInPlaceIsANewValueInTheSameMemory) {
  TraceWriter w;
  const ViewId y = w.view(w.buffer(Role::kIntermediate, 4));
  w.call("make", {}, {y});
  w.call("update", {}, {}, {y});
  const Graph graph = build_graph(w.trace);
  const Operand& update = graph.ops[1].operands[0];
  EXPECT_NE(update.before, update.after);
  EXPECT_EQ(graph.values[update.before.index].memory, graph.values[update.after.index].memory);
  EXPECT_TRUE(has_edge(graph, 0, 1));
}

TEST(BuildGraph, PartialWritesKeepTheValueAndDisjointOnesAreFree) {
  TraceWriter w;
  const BufferId cat = w.buffer(Role::kIntermediate, 8);
  const ViewId x = w.view(w.buffer(Role::kInput, 4));
  w.call("left", {x}, {w.view(cat, 0, 4)});
  w.call("right", {x}, {w.view(cat, 4, 8)});
  w.call("overlapping", {x}, {w.view(cat, 3, 5)});
  w.call("read left", {w.view(cat, 0, 3)}, {w.view(w.buffer(Role::kIntermediate, 3))});
  const Graph graph = build_graph(w.trace);
  EXPECT_EQ(graph.ops[0].operands[1].before, graph.ops[0].operands[1].after);
  EXPECT_FALSE(has_edge(graph, 0, 1));
  EXPECT_TRUE(has_edge(graph, 0, 2));
  EXPECT_TRUE(has_edge(graph, 1, 2));
  EXPECT_TRUE(has_edge(graph, 0, 3));
  EXPECT_FALSE(has_edge(graph, 1, 3));
  EXPECT_FALSE(has_edge(graph, 2, 3));
  EXPECT_TRUE(validate_graph(graph).empty());
}

TEST(BuildGraph, WritingWhatTheSameCallReadsElsewhereDoesNotTakeNewMemory) {
  TraceWriter w;
  const BufferId buffer = w.buffer(Role::kIntermediate, 8);
  w.call("make", {}, {w.view(buffer)});
  w.call("reads a part, writes the whole", {w.view(buffer, 0, 4)}, {w.view(buffer)});
  const Graph graph = build_graph(w.trace);
  EXPECT_EQ(memory_of(graph, 1, 0), memory_of(graph, 1, 1));
  EXPECT_TRUE(validate_graph(graph).empty());
}

TEST(BuildGraph, RandomOpsFormAChain) {
  TraceWriter w;
  const BufferId generator = w.buffer(Role::kGenerator, 1);
  for (int i = 0; i < 3; ++i)
    w.call("draw", {}, {w.view(w.buffer(Role::kIntermediate, 4))}, {w.view(generator)});
  const Graph graph = build_graph(w.trace);
  EXPECT_TRUE(has_edge(graph, 0, 1));
  EXPECT_TRUE(has_edge(graph, 1, 2));
}

TEST(BuildGraph, OnlyTheLastMemoryOfAnOutputLeaves) {
  TraceWriter w;
  const ViewId y = w.view(w.buffer(Role::kIntermediate, 4));
  w.call("first", {}, {y});
  w.call("last", {}, {y});
  w.trace.outputs = {y};
  const Graph graph = build_graph(w.trace);
  EXPECT_FALSE(graph.memories[memory_of(graph, 0, 0).index].is_output);
  EXPECT_TRUE(graph.memories[memory_of(graph, 1, 0).index].is_output);
  EXPECT_EQ(graph.outputs[0].memory, memory_of(graph, 1, 0));
}

// Any mixture of reads, whole and partial writes and updates.
Trace random_trace(std::mt19937& rng) {
  auto pick = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  TraceWriter w;
  const Role roles[] = {Role::kInput, Role::kExternal, Role::kIntermediate, Role::kIntermediate};
  for (size_t i = 0; i < 2 + pick(5); ++i)
    w.buffer(roles[pick(4)], 1 + static_cast<int64_t>(pick(8)));
  auto random_view = [&] {
    const BufferId buffer(pick(w.trace.buffers.size()));
    const auto size = static_cast<int64_t>(w.trace.buffers[buffer.index].bytes / 4);
    if (pick(2)) return w.view(buffer);
    const auto begin = static_cast<int64_t>(pick(size));
    return w.view(buffer, begin, begin + 1 + static_cast<int64_t>(pick(size - begin)));
  };
  for (size_t i = 0; i < 1 + pick(20); ++i) {
    std::vector<ViewId> parts[3];
    for (auto& part : parts)
      for (size_t j = pick(3); j > 0; --j) part.push_back(random_view());
    w.call("op", parts[0], parts[1], parts[2]);
  }
  w.trace.outputs = {random_view()};
  return w.trace;
}

TEST(BuildGraph, RandomTracesValidate) {
  std::mt19937 rng(1);
  for (int i = 0; i < 3000; ++i) {
    const Graph graph = build_graph(random_trace(rng));
    const auto faults = validate_graph(graph);
    ASSERT_TRUE(faults.empty()) << "trace " << i << ": " << faults.front() << "\n"
                                << dump_text(graph);
  }
}

TEST(ValidateGraph, MissesNoDroppedEdge) {
  std::mt19937 rng(2);
  size_t dropped = 0;
  for (int i = 0; i < 300; ++i) {
    const Graph graph = build_graph(random_trace(rng));
    for (size_t e = 0; e < graph.edges.size(); ++e) {
      Graph mutant = graph;
      mutant.edges.erase(mutant.edges.begin() + static_cast<std::ptrdiff_t>(e));
      // An edge that others imply may go: then there is still a path, found here by hand.
      std::vector<bool> reached(graph.ops.size());
      reached[graph.edges[e].before.index] = true;
      for (const Edge& edge : mutant.edges)  // sorted, so one sweep is enough
        if (reached[edge.before.index]) reached[edge.after.index] = true;
      if (reached[graph.edges[e].after.index]) continue;
      ++dropped;
      EXPECT_FALSE(validate_graph(mutant).empty());
    }
  }
  EXPECT_GT(dropped, 100U);
}

TEST(ValidateGraph, NoticesIdsOutOfRangeAndViewsOutsideTheirMemory) {
  TraceWriter w;
  const ViewId y = w.view(w.buffer(Role::kIntermediate, 4));
  w.call("f", {}, {y});
  Graph graph = build_graph(w.trace);
  Graph outside = graph;
  outside.memories[0].bytes = 8;
  EXPECT_FALSE(validate_graph(outside).empty());
  Graph nowhere = graph;
  nowhere.ops[0].operands[0].memory = MemoryId(7);
  EXPECT_FALSE(validate_graph(nowhere).empty());
}

TEST(DumpGraph, ShowsOpsAndOrder) {
  TraceWriter w;
  const ViewId x = w.view(w.buffer(Role::kInput, 4));
  const ViewId y = w.view(w.buffer(Role::kIntermediate, 4));
  w.call("aten::relu", {x}, {y});
  w.call("aten::add", {x, y}, {w.view(w.buffer(Role::kIntermediate, 4))});
  w.trace.calls[0].module = "features.\"0\"";
  const Graph graph = build_graph(w.trace);
  EXPECT_EQ(dump_text(graph),
            "0: %1 = aten::relu(%0: Float[4])  # features.\"0\"\n"
            "1: %2 = aten::add(%0: Float[4], %1: Float[4])  after 0\n");
  EXPECT_NE(dump_dot(graph).find("op0 -> op1;"), std::string::npos);
  EXPECT_NE(dump_dot(graph).find("features.\\\"0\\\""), std::string::npos);
}

}  // namespace
}  // namespace nimble
