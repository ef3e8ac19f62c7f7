#include "nimble/schedule/build.h"

#include <gtest/gtest.h>

#include "nimble/base/error.h"
#include "nimble/graph/hazards.h"
#include "nimble/schedule/bounded.h"
#include "nimble/schedule/matching.h"
#include "nimble/schedule/random_dag.h"
#include "nimble/schedule/verify.h"

namespace nimble {
namespace {

const DType kFloat{.code = 6, .bytes = 4, .name = "float32"};

// A program whose ops are the nodes of a DAG: every op writes a memory of its own, and reads those
// of its predecessors.
Graph graph_of(const Dag& dag) {
  Graph graph;
  const auto sources = predecessors(dag);
  const TensorDesc desc{.dtype = kFloat, .sizes = {16}, .strides = {1}};
  for (uint32_t node = 0; node < dag.size(); ++node) {
    graph.views.push_back({BufferId(node), desc});
    graph.memories.push_back({.bytes = 64, .buffer = BufferId(node)});
    graph.values.push_back({MemoryId(node), OpId(node), {}});
    Op& op = graph.ops.emplace_back();
    for (uint32_t source : sources[node]) {
      graph.values[source].readers.push_back(OpId(node));
      op.operands.push_back(
          {ValueId(source), ValueId(), MemoryId(source), ViewId(source), true, false});
    }
    op.operands.push_back({ValueId(), ValueId(node), MemoryId(node), ViewId(node), false, true});
    for (uint32_t to : dag.successors[node]) graph.edges.push_back({OpId(node), OpId(to)});
  }
  return graph;
}

// As the engine finds them: less what transitivity gives, and a few more where periods differ.
std::vector<Edge> hazards_of(Graph graph) {
  for (Memory& memory : graph.memories)
    if (memory.role == Role::kGenerator) memory.bytes = 1;
  for (Op& op : graph.ops)
    for (Operand& operand : op.operands)
      if (graph.memories[operand.memory.index].role == Role::kGenerator)
        operand.part_bytes = ByteSet{0, 1};
  return find_hazards(graph);
}

// Which tasks have ended before which start, from stream order and waits, by brute force.
std::vector<std::vector<bool>> order_of(const Schedule& schedule) {
  const size_t size = schedule.tasks.size();
  std::vector<std::vector<bool>> before(size, std::vector<bool>(size, false));
  for (const auto& stream : schedule.streams) {
    for (size_t i = 0; i < stream.size(); ++i) {
      const uint32_t task = stream[i].task.index;
      if (i > 0) before[stream[i - 1].task.index][task] = true;
      for (const Wait& wait : stream[i].waits)
        before[schedule.streams[wait.stream.index][wait.step].task.index][task] = true;
    }
  }
  for (size_t via = 0; via < size; ++via)
    for (size_t from = 0; from < size; ++from)
      if (before[from][via])
        for (size_t to = 0; to < size; ++to)
          if (before[via][to]) before[from][to] = true;
  return before;
}

TEST(BuildSchedule, DiamondWaitsTwice) {
  const Graph graph = graph_of(make_dag(4, {{0, 1}, {0, 2}, {0, 3}, {1, 3}, {2, 3}}));
  const Schedule schedule = build_schedule(graph, {{{0, 1, 3}, {2}}}, {1, 2, 3, 4}).schedule;
  EXPECT_EQ(schedule.wait_count(), 2u);
  EXPECT_EQ(schedule.streams[1][0].waits, (std::vector<Wait>{{StreamId(0), 0}}));
  EXPECT_EQ(schedule.streams[0][2].waits, (std::vector<Wait>{{StreamId(1), 0}}));
  EXPECT_EQ(schedule.tasks[2].cost_ns, 3);
}

TEST(BuildSchedule, AnEarlierWaitOnTheStreamIsEnough) {
  // 2 waits for 1, so it needs no wait for 0; 3 comes after 2 and needs none at all.
  const Graph graph = graph_of(make_dag(4, {{0, 2}, {1, 2}, {0, 3}, {1, 3}}));
  const Schedule schedule = build_schedule(graph, {{{0, 1}, {2, 3}}}, {}).schedule;
  EXPECT_EQ(schedule.streams[1][0].waits, (std::vector<Wait>{{StreamId(0), 1}}));
  EXPECT_TRUE(schedule.streams[1][1].waits.empty());
}

TEST(BuildSchedule, AWaitOverAThirdStreamIsEnough) {
  // 2 waits for 1, which waited for 0 by stream order only the schedule knows of.
  const Graph graph = graph_of(make_dag(4, {{0, 3}, {1, 2}, {2, 3}}));
  const Schedule schedule = build_schedule(graph, {{{0, 1}, {2}, {3}}}, {}).schedule;
  EXPECT_EQ(schedule.streams[2][0].waits, (std::vector<Wait>{{StreamId(1), 0}}));
}

TEST(BuildSchedule, TouchesAreTheBytesOfTheViews) {
  Graph graph;
  graph.memories.resize(3);
  graph.memories[0].bytes = graph.memories[2].bytes = 64;
  graph.memories[1].role = Role::kGenerator;
  graph.views.resize(2);
  graph.views[0].desc = {.dtype = kFloat, .sizes = {3}, .strides = {2}, .offset = 2};
  graph.views[1].desc = {.dtype = kFloat, .sizes = {0}, .strides = {1}};
  Op& op = graph.ops.emplace_back();
  op.name = "aten::bernoulli_";
  op.module = "dropout";
  const ValueId none;
  op.operands = {{none, none, MemoryId(0), ViewId(0), false, true},
                 {none, none, MemoryId(1), ViewId(1), true, true},
                 {none, none, MemoryId(2), ViewId(0), false, false},
                 {none, none, MemoryId(2), ViewId(0), true, false, ByteSet{16, 20, 0, 0}}};
  const Schedule schedule = build_schedule(graph, single_stream(graph), {}).schedule;
  const Task& task = schedule.tasks[0];
  EXPECT_EQ(task.label, "aten::bernoulli_");
  EXPECT_EQ(task.module, "dropout");
  ASSERT_EQ(task.touches.size(), 3u) << "an operand that is neither read nor written is no touch";
  EXPECT_EQ(task.touches[0].bytes, (ByteSet{8, 28, 8, 4}));
  EXPECT_TRUE(task.touches[0].writes);
  EXPECT_EQ(task.touches[2].bytes, (ByteSet{16, 20, 0, 0})) << "a part of the view";
  EXPECT_TRUE(schedule.placements[1].order_only);
  EXPECT_FALSE(schedule.placements[0].order_only);
}

TEST(BuildSchedule, OnlyIntermediatesOfOursAreInTheArena) {
  const Graph graph = [] {
    Graph made = graph_of(make_dag(5, {{0, 1}, {1, 2}, {2, 3}, {3, 4}}));
    made.memories[1].role = Role::kExternal;
    made.memories[2].is_output = true;
    return made;
  }();
  const std::vector<bool> unplanned{false, false, false, true, false};
  const Schedule schedule = build_schedule(graph, single_stream(graph), {}, unplanned).schedule;
  std::vector<bool> in_arena;
  for (const Placement& placement : schedule.placements) in_arena.push_back(placement.in_arena);
  EXPECT_EQ(in_arena, (std::vector<bool>{true, false, false, false, true}));
}

TEST(BuildSchedule, SingleStreamNeedsNoWait) {
  std::mt19937 rng(10);
  for (int round = 0; round < 50; ++round) {
    const Graph graph = testing::random_graph(rng, 60);
    const BuiltSchedule built = build_schedule(graph, single_stream(graph), {});
    ASSERT_EQ(built.schedule.wait_count(), 0u);
    ASSERT_EQ(verify_schedule(built.schedule), std::vector<std::string>());
  }
}

TEST(BuildSchedule, UnboundedStreamsWaitExactlyOnReducedEdgesThatAreNotMatched) {
  std::mt19937 rng(11);
  for (int round = 0; round < 1000; ++round) {
    const Dag dag = testing::random_dag(rng, 50);
    const Dag reduced = minimum_equivalent_graph(dag, Reachability(dag));
    const Schedule schedule =
        build_schedule(graph_of(dag), assign_unbounded_streams(dag), {}).schedule;
    ASSERT_EQ(schedule.wait_count(), reduced.edge_count() - maximum_matching(reduced).size);
    ASSERT_EQ(verify_schedule(schedule), std::vector<std::string>());
  }
}

TEST(BuildSchedule, EveryEdgeIsCoveredAndNoWaitIsImpliedByTheOthers) {
  std::mt19937 rng(12);
  for (int round = 0; round < 400; ++round) {
    const Dag dag = testing::random_dag(rng, 30);
    const StreamAssignment assignment = testing::random_assignment(rng, dag, 5);
    Schedule schedule = build_schedule(graph_of(dag), assignment, {}).schedule;
    for (size_t s = 0; s < schedule.streams.size(); ++s)
      for (size_t k = 0; k < schedule.streams[s].size(); ++k)
        ASSERT_EQ(schedule.streams[s][k].task.index, assignment.streams[s][k]);
    const auto before = order_of(schedule);
    for (uint32_t from = 0; from < dag.size(); ++from)
      for (uint32_t to : dag.successors[from]) ASSERT_TRUE(before[from][to]);
    for (auto& stream : schedule.streams) {
      for (Step& step : stream) {
        ASSERT_TRUE(std::is_sorted(step.waits.begin(), step.waits.end()));
        const std::vector<Wait> waits = step.waits;
        for (size_t drop = 0; drop < waits.size(); ++drop) {
          step.waits.erase(step.waits.begin() + static_cast<ptrdiff_t>(drop));
          ASSERT_NE(order_of(schedule), before) << "a wait too many";
          step.waits = waits;
        }
      }
    }
  }
}

TEST(BuildSchedule, RandomProgramsVerifyUnderEveryAssignment) {
  std::mt19937 rng(13);
  for (int round = 0; round < 1000; ++round) {
    Graph graph = testing::random_graph(rng, 80);
    if (round % 2 == 0) graph.edges = hazards_of(graph);
    const Dag dag = dependency_dag(graph);
    const std::vector<double> costs = testing::random_costs(rng, dag.size());
    const BoundedOptions bounded{.workers = 3, .wait_ns = 50, .search_steps = 100};
    for (const StreamAssignment& assignment :
         {assign_unbounded_streams(dag), testing::random_assignment(rng, dag, 6),
          assign_bounded_streams(dag, costs, bounded).assignment}) {
      const BuiltSchedule built = build_schedule(graph, assignment, costs);
      ASSERT_EQ(verify_schedule(built.schedule), std::vector<std::string>());
    }
  }
}

TEST(BuildSchedule, RejectsAnAssignmentThatIsNotOne) {
  const Graph graph = graph_of(make_dag(3, {{0, 1}}));
  EXPECT_THROW(build_schedule(graph, {{{0, 1}}}, {}), InternalError);
  EXPECT_THROW(build_schedule(graph, {{{1, 0, 2}}}, {}), InternalError);
  EXPECT_THROW(build_schedule(graph, {{{0, 1, 2, 7}}}, {}), InternalError);
}

}  // namespace
}  // namespace nimble
