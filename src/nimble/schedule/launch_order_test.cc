#include "nimble/schedule/launch_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "nimble/graph/reorder_ops.h"
#include "nimble/schedule/build.h"
#include "nimble/schedule/capped_streams.h"
#include "nimble/schedule/capture_plan.h"
#include "nimble/schedule/random_dag.h"
#include "nimble/schedule/simulate_gpu.h"

namespace nimble {
namespace {

using Order = std::vector<uint32_t>;

std::vector<bool> random_bits(std::mt19937& rng, size_t size) {
  std::vector<bool> bits(size);
  for (size_t i = 0; i < size; ++i) bits[i] = testing::random_chance(rng, 0.5);
  return bits;
}

TEST(LaunchOrder, TheLongestPathGoesFirst) {
  //  0 ─┬─ 1 ── 3
  //     └─ 2 (long)
  const Dag dag = make_dag(4, {{0, 1}, {1, 3}, {0, 2}});
  EXPECT_EQ(launch_order(dag, {1, 1, 10, 1}, {false, false, false, false}), (Order{0, 2, 1, 3}));
}

TEST(LaunchOrder, ArithmeticAlternatesWithBandwidthAmongEqualPaths) {
  const Dag dag = make_dag(4, {});
  EXPECT_EQ(launch_order(dag, {1, 1, 1, 1}, {true, true, false, false}), (Order{0, 2, 1, 3}));
  // Not where one path is longer.
  EXPECT_EQ(launch_order(dag, {1, 2, 1, 1}, {true, true, false, false}), (Order{1, 2, 0, 3}));
}

TEST(LaunchOrder, KeepsEveryEdgeAndEveryNodeOnce) {
  std::mt19937 rng(70);
  for (int round = 0; round < 500; ++round) {
    const Dag dag = testing::random_dag(rng, 60);
    const Order order =
        launch_order(dag, testing::random_costs(rng, dag.size()), random_bits(rng, dag.size()));
    std::vector<size_t> place(dag.size(), SIZE_MAX);
    ASSERT_EQ(order.size(), dag.size());
    for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    for (uint32_t from = 0; from < dag.size(); ++from)
      for (uint32_t to : dag.successors[from]) ASSERT_LT(place[from], place[to]);
  }
}

TEST(LaunchOrder, RandomOpsStayInTheirOrderAndCapturesStayProven) {
  std::mt19937 rng(71);
  size_t moved = 0;
  size_t random_ops = 0;
  for (int round = 0; round < 300; ++round) {
    Graph graph = testing::random_graph(rng, 60);
    const auto draws = [&](const Op& op) {
      return std::any_of(op.operands.begin(), op.operands.end(), [&](const Operand& operand) {
        return graph.memories[operand.memory.index].role == Role::kGenerator;
      });
    };
    std::vector<std::string> drawn;
    for (const Op& op : graph.ops)
      if (draws(op)) drawn.push_back(op.name);
    const std::vector<double> cost = testing::random_costs(rng, graph.ops.size());
    const Order order =
        launch_order(dependency_dag(graph), cost, random_bits(rng, graph.ops.size()));
    moved += !std::is_sorted(order.begin(), order.end());
    reorder_ops(graph, order);
    std::vector<std::string> drawn_now;
    for (const Op& op : graph.ops)
      if (draws(op)) drawn_now.push_back(op.name);
    ASSERT_EQ(drawn_now, drawn);
    random_ops += drawn.size();

    const Dag dag = dependency_dag(graph);
    std::vector<double> sorted_cost;
    for (uint32_t node : order) sorted_cost.push_back(cost[node]);
    const StreamAssignment streams =
        urgent_first(dag, sorted_cost, cap_streams(dag, assign_unbounded_streams(dag), 4));
    const Schedule schedule = build_schedule(graph, streams, sorted_cost).schedule;
    ASSERT_TRUE(verify_schedule(schedule).empty());
    std::vector<bool> may_drop;
    for (const Memory& memory : graph.memories)
      may_drop.push_back(memory.role == Role::kIntermediate && !memory.is_output);
    const CapturePlan plan = plan_capture(schedule, may_drop);
    ASSERT_TRUE(verify_capture(schedule, may_drop, plan).empty());
    for (size_t i = 0; i < plan.steps.size(); ++i)
      ASSERT_EQ(plan.steps[i].task, TaskId(i)) << "ops are issued in launch order";
  }
  EXPECT_GT(moved, 200u);
  EXPECT_GT(random_ops, 200u);
}

// What the GPU takes with every kernel on an SM of its own, and no more than four streams.
double makespan(const Dag& dag, const std::vector<double>& cost) {
  Graph graph;
  graph.ops.resize(dag.size());
  for (uint32_t from = 0; from < dag.size(); ++from)
    for (uint32_t to : dag.successors[from]) graph.edges.push_back({OpId(from), OpId(to)});
  Gpu gpu;
  gpu.sms = 4;
  gpu.flops_per_ns = 4;
  std::vector<GpuTask> tasks;
  for (double flops : cost) tasks.push_back({.flops = flops});
  const StreamAssignment streams = cap_streams(dag, assign_unbounded_streams(dag), 4, cost);
  return simulate_replay(gpu, tasks, build_schedule(graph, streams, cost).schedule.streams)
      .total_ns;
}

TEST(LaunchOrder, IsNotSlowerThanTheRecordedOrderOnAverage) {
  std::mt19937 rng(72);
  double recorded = 0;
  double launched = 0;
  for (int round = 0; round < 500; ++round) {
    const Dag dag = testing::random_dag(rng, 80);
    const std::vector<double> cost = testing::random_costs(rng, dag.size());
    const Order order = launch_order(dag, cost, std::vector<bool>(dag.size()));
    std::vector<uint32_t> place(dag.size());
    for (uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    std::vector<std::pair<uint32_t, uint32_t>> edges;
    std::vector<double> sorted_cost;
    for (uint32_t node : order) sorted_cost.push_back(cost[node]);
    for (uint32_t from = 0; from < dag.size(); ++from)
      for (uint32_t to : dag.successors[from]) edges.emplace_back(place[from], place[to]);
    const double before = makespan(dag, cost);
    if (before <= 0) continue;
    recorded += 1;
    launched += makespan(make_dag(dag.size(), edges), sorted_cost) / before;
  }
  EXPECT_LT(launched, recorded);
}

TEST(UrgentFirst, TheStreamOfTheLongestPathIsFirst) {
  const Dag dag = make_dag(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  const StreamAssignment sorted = urgent_first(dag, {1, 1, 10, 1}, {{{0, 1}, {2, 3}}});
  EXPECT_EQ(sorted.streams, (std::vector<Order>{{2, 3}, {0, 1}}));
}

TEST(UrgentFirst, KeepsEveryStream) {
  std::mt19937 rng(73);
  for (int round = 0; round < 200; ++round) {
    const Dag dag = testing::random_dag(rng, 40);
    const StreamAssignment streams = testing::random_assignment(rng, dag, 5);
    StreamAssignment sorted = urgent_first(dag, testing::random_costs(rng, dag.size()), streams);
    ASSERT_TRUE(std::is_permutation(streams.streams.begin(), streams.streams.end(),
                                    sorted.streams.begin(), sorted.streams.end()));
  }
}

}  // namespace
}  // namespace nimble
