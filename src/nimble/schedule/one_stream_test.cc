#include "nimble/schedule/one_stream.h"

#include <gtest/gtest.h>

#include <map>

#include "nimble/schedule/build.h"
#include "nimble/schedule/test_network.h"
#include "nimble/schedule/verify.h"

namespace nimble {
namespace {

// Ops of so many parts each, without operands.
Graph graph_of_parts(const std::vector<size_t>& parts_by_op) {
  Graph graph;
  for (uint32_t op = 0; op < parts_by_op.size(); ++op) {
    for (size_t part = 0; part < parts_by_op[op]; ++part) {
      Op& added = graph.ops.emplace_back();
      added.group = op;
      if (parts_by_op[op] > 1) added.part = Part{};
    }
  }
  return graph;
}

using Streams = std::vector<std::vector<uint32_t>>;

TEST(OneOpAtATime, NeighbouringPartsStayTogether) {
  const Graph graph = graph_of_parts({4, 1, 6});
  EXPECT_EQ(one_op_at_a_time(graph, 2, {}).streams,
            (Streams{{0, 1, 4, 5, 6, 7}, {2, 3, 8, 9, 10}}));
  EXPECT_EQ(one_op_at_a_time(graph, 3, {}).streams,
            (Streams{{0, 4, 5, 6}, {1, 2, 7, 8}, {3, 9, 10}}));
}

TEST(OneOpAtATime, UnlessAnotherDivisionIsFaster) {
  // 5 6 | 7 8 would take 10, 5 7 | 6 8 takes 8.
  EXPECT_EQ(one_op_at_a_time(graph_of_parts({4}), 2, {5, 5, 3, 3}).streams,
            (Streams{{0, 2}, {1, 3}}));
}

TEST(OneOpAtATime, OpsOfOnePartAndOneWorkerStayOnTheFirst) {
  EXPECT_EQ(one_op_at_a_time(graph_of_parts({1, 1, 1}), 4, {}).streams, (Streams{{0, 1, 2}}));
  EXPECT_EQ(one_op_at_a_time(graph_of_parts({2, 2}), 1, {}).streams, (Streams{{0, 1, 2, 3}}));
  EXPECT_TRUE(one_op_at_a_time(Graph(), 2, {}).streams.empty());
}

TEST(OneOpAtATime, PartsWithoutCostAreSharedOutToo) {
  EXPECT_EQ(one_op_at_a_time(graph_of_parts({4}), 2, {0, 0, 0, 0}).streams.size(), 2u);
}

TEST(OneOpAtATime, TwoWorkersWaitTwiceBetweenTwoOps) {
  const Graph graph = graph_of_parts({4, 4});
  const Schedule schedule = build_one_stream(graph, 2, {}).schedule;
  EXPECT_EQ(schedule.wait_count(), 2u);
  EXPECT_EQ(schedule.streams[0][2].waits, (std::vector<Wait>{{StreamId(1), 1}}));
  EXPECT_EQ(schedule.streams[1][2].waits, (std::vector<Wait>{{StreamId(0), 1}}));
}

TEST(OneOpAtATime, AWorkerThatSatAnOpOutWaitsForAllThatCameBefore) {
  const Graph graph = graph_of_parts({4, 1, 4});
  const Schedule schedule = build_one_stream(graph, 2, {}).schedule;
  EXPECT_EQ(schedule.wait_count(), 2u);  // for the first op's end, and for the single part
}

// When tasks run that take so long, each stream in its order and after its waits.
struct Interval {
  double start = 0;
  double end = 0;
};
std::vector<Interval> run_schedule(const Schedule& schedule, const std::vector<double>& costs) {
  std::vector<Interval> times(schedule.tasks.size());
  std::vector<size_t> done(schedule.streams.size(), 0);
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t s = 0; s < done.size(); ++s) {
      for (; done[s] < schedule.streams[s].size(); ++done[s]) {
        const Step& step = schedule.streams[s][done[s]];
        double start = done[s] == 0 ? 0 : times[schedule.streams[s][done[s] - 1].task.index].end;
        bool ready = true;
        for (const Wait& wait : step.waits) {
          ready = ready && done[wait.stream.index] > wait.step;
          const TaskId awaited = schedule.streams[wait.stream.index][wait.step].task;
          start = std::max(start, times[awaited.index].end);
        }
        if (!ready) break;
        times[step.task.index] = {start, start + costs[step.task.index]};
        progress = true;
      }
    }
  }
  return times;
}

TEST(OneOpAtATime, NoTwoOpsEverRunAtTheSameTime) {
  std::mt19937 rng(30);
  for (int round = 0; round < 30; ++round) {
    const auto network = testing::random_network(rng, testing::random_between(rng, 1, 4), 20000);
    const size_t workers = testing::random_between(rng, 1, 4);
    const Schedule schedule = build_one_stream(network.graph, workers, network.costs).schedule;
    ASSERT_EQ(verify_schedule(schedule), std::vector<std::string>());

    std::vector<double> costs = network.costs;  // whatever they turn out to be
    for (double& cost : costs) cost *= 0.5 + static_cast<double>(rng() % 100) / 100;
    const std::vector<Interval> times = run_schedule(schedule, costs);
    std::map<uint32_t, Interval> by_op;
    double busy = 0;
    for (uint32_t i = 0; i < times.size(); ++i) {
      auto [op, is_new] = by_op.try_emplace(network.graph.ops[i].group, times[i]);
      op->second.start = std::min(op->second.start, times[i].start);
      op->second.end = std::max(op->second.end, times[i].end);
      busy += costs[i];
    }
    double end = 0;
    for (const auto& [op, time] : by_op) {
      ASSERT_GE(time.start, end * (1 - 1e-12)) << "op " << op;
      end = time.end;
    }
    ASSERT_GE(busy, end * 0.999);
    // Everybody hears once of everybody else, at most.
    ASSERT_LE(schedule.wait_count(), (by_op.size() - 1) * workers * (workers - 1));
  }
}

TEST(OneOpAtATime, NeedsHardlyMoreMemoryThanOneWorker) {
  std::mt19937 rng(31);
  for (int round = 0; round < 10; ++round) {
    const auto network = testing::random_network(rng, 5, 20000);
    const Schedule many = build_one_stream(network.graph, 3, network.costs).schedule;
    const Schedule one = build_schedule(network.graph, single_stream(network.graph), {}).schedule;
    EXPECT_LE(static_cast<double>(many.arena_bytes), 1.05 * static_cast<double>(one.arena_bytes));
  }
}

}  // namespace
}  // namespace nimble
