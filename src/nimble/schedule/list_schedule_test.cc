#include "nimble/schedule/list_schedule.h"

#include <gtest/gtest.h>

#include "nimble/schedule/build.h"
#include "nimble/schedule/local_search.h"
#include "nimble/schedule/random_dag.h"

namespace nimble {
namespace {

void expect_valid(const BoundedProblem& problem, const BoundedPlan& plan,
                  const BoundedTimes& times) {
  std::vector<double> free_at(problem.workers, 0);
  std::vector<bool> done(problem.size(), false);
  ASSERT_EQ(plan.order.size(), problem.size());
  for (uint32_t node : plan.order) {
    const uint32_t worker = plan.worker[node];
    ASSERT_LT(worker, problem.workers);
    ASSERT_GE(times.start[node], free_at[worker]);
    for (uint32_t source : problem.sources[node]) {
      ASSERT_TRUE(done[source]) << "the order keeps every edge";
      const double wait = plan.worker[source] != worker ? problem.wait : 0;
      ASSERT_GE(times.start[node], times.finish[source] + wait);
    }
    ASSERT_EQ(times.finish[node], times.start[node] + problem.cost[node]);
    free_at[worker] = times.finish[node];
    done[node] = true;
  }
  ASSERT_EQ(times.makespan, *std::max_element(free_at.begin(), free_at.end()));
}

TEST(ListSchedule, SimulationAgreesUnlessMemoryIsShort) {
  std::mt19937 rng(50);
  for (int round = 0; round < 500; ++round) {
    const Dag dag = testing::random_dag(rng, 60);
    const BoundedProblem problem(dag, testing::random_costs(rng, dag.size()),
                                 static_cast<double>(rng() % 3 * 100),
                                 testing::random_between(rng, 1, 4));
    ListOptions options;
    if (rng() % 2 == 0) options.run_ahead_ns = static_cast<double>(rng() % 20000);
    BoundedTimes times;
    const BoundedPlan plan = list_schedule(problem, options, times);
    ASSERT_NO_FATAL_FAILURE(expect_valid(problem, plan, times));
    BoundedTimes simulated;
    simulate(problem, plan, simulated);
    ASSERT_LE(simulated.makespan, times.makespan);
    if (std::isinf(options.run_ahead_ns)) {
      ASSERT_EQ(simulated.start, times.start);
    }
  }
}

TEST(ListSchedule, KeepsALimitThatOneWorkerKeeps) {
  std::mt19937 rng(51);
  size_t would_take_more = 0;
  for (int round = 0; round < 500; ++round) {
    const Graph graph = testing::random_graph(rng, 60);
    const Dag dag = dependency_dag(graph);
    const BoundedProblem problem(dag, testing::random_costs(rng, dag.size()), 100,
                                 testing::random_between(rng, 2, 4));
    const MemoryUses uses = planned_memory_uses(graph);
    const size_t serial = most_bytes_taken_serially(uses);
    BoundedTimes times;
    list_schedule(problem, {}, times);
    would_take_more += most_bytes_taken(uses, times) > serial;

    ListOptions options;
    options.uses = &uses;
    options.memory_limit_bytes = serial;
    const BoundedPlan plan = list_schedule(problem, options, times);
    ASSERT_NO_FATAL_FAILURE(expect_valid(problem, plan, times));
    ASSERT_LE(most_bytes_taken(uses, times), serial);

    options.memory_limit_bytes = serial / 2;  // cannot be kept, but must end
    ASSERT_NO_FATAL_FAILURE(expect_valid(problem, list_schedule(problem, options, times), times));
  }
  EXPECT_GT(would_take_more, 100u);
}

TEST(ListSchedule, MemoryIsTakenFromTheFirstStartToTheLastEnd) {
  // Memory 0 of 10 bytes from 0 to 4, memory 1 of 20 from 4 to 6, memory 2 of 5 from 3 to 5.
  const MemoryUses uses{{{0}, {0, 2}, {1, 2}, {1}}, {10, 20, 5}};
  BoundedTimes times;
  times.start = {0, 3, 4, 5};
  times.finish = {1, 4, 5, 6};
  EXPECT_EQ(most_bytes_taken(uses, times), 25u);
  EXPECT_EQ(most_bytes_taken_serially(uses), 25u);
}

TEST(LocalSearch, NeverMakesItWorseAndKeepsEveryEdge) {
  std::mt19937 rng(52);
  size_t better = 0;
  for (int round = 0; round < 400; ++round) {
    const Dag dag = testing::random_dag(rng, 60);
    const BoundedProblem problem(dag, testing::random_costs(rng, dag.size()),
                                 static_cast<double>(rng() % 3 * 100),
                                 testing::random_between(rng, 1, 4));
    BoundedTimes before;
    BoundedPlan plan = list_schedule(problem, {}, before);
    simulate(problem, plan, before);
    improve_plan(problem, plan, 300);
    BoundedTimes after;
    simulate(problem, plan, after);
    ASSERT_NO_FATAL_FAILURE(expect_valid(problem, plan, after));
    ASSERT_LE(after.makespan, before.makespan);
    if (after.makespan == before.makespan) {
      ASSERT_LE(after.crossings, before.crossings);
    }
    better += after.makespan < before.makespan;
  }
  EXPECT_GT(better, 50u);
}

}  // namespace
}  // namespace nimble
