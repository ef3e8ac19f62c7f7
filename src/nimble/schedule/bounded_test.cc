#include "nimble/schedule/bounded.h"

#include <gtest/gtest.h>

#include <numeric>

#include "nimble/schedule/random_dag.h"

namespace nimble {
namespace {

TEST(SimulateMakespan, AddsTheWaitOnEdgesBetweenWorkers) {
  // 0 -> 1 -> 3 and 0 -> 2 -> 3
  const Dag dag = make_dag(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  const std::vector<double> costs{10, 100, 80, 10};
  EXPECT_DOUBLE_EQ(simulate_makespan(dag, costs, {{{0, 1, 2, 3}}}, 5), 200);
  // 2 starts at 10 + 5 and ends at 95; 3 starts when 1 ends at 110.
  EXPECT_DOUBLE_EQ(simulate_makespan(dag, costs, {{{0, 1, 3}, {2}}}, 5), 120);
  // 2 ends at 90, 1 at 115, and 3 hears of it at 120.
  EXPECT_DOUBLE_EQ(simulate_makespan(dag, costs, {{{0, 2, 3}, {1}}}, 5), 130);
  EXPECT_DOUBLE_EQ(simulate_makespan(dag, costs, {{{0, 1}, {2}, {3}}}, 5), 125);
}

TEST(SimulateMakespan, WorkersRunInTheirOwnOrder) {
  const Dag dag = make_dag(3, {{1, 2}});
  const std::vector<double> costs{100, 10, 10};
  EXPECT_DOUBLE_EQ(simulate_makespan(dag, costs, {{{0, 1}, {2}}}, 0), 120);
  EXPECT_DOUBLE_EQ(simulate_makespan(dag, costs, {{{1, 0}, {2}}}, 0), 110);
}

TEST(BoundedStreams, IndependentNodesAreSharedOut) {
  const BoundedSchedule bounded =
      assign_bounded_streams(Dag(8), std::vector<double>(8, 100), {.workers = 4});
  EXPECT_EQ(bounded.assignment.streams.size(), 4u);
  EXPECT_DOUBLE_EQ(bounded.makespan_ns, 200);
  EXPECT_DOUBLE_EQ(bounded.lower_bound_ns, 200);
}

TEST(BoundedStreams, WaitsThatCostMoreThanTheyBringAreNotMade) {
  const Dag dag = make_dag(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  const BoundedSchedule bounded =
      assign_bounded_streams(dag, {10, 10, 10, 10}, {.workers = 2, .wait_ns = 200});
  EXPECT_EQ(bounded.assignment.streams.size(), 1u);
  EXPECT_DOUBLE_EQ(bounded.makespan_ns, 40);
}

TEST(BoundedStreams, AChainStaysOnOneWorker) {
  const Dag dag = make_dag(4, {{0, 1}, {1, 2}, {2, 3}});
  const BoundedSchedule bounded =
      assign_bounded_streams(dag, {1000, 1000, 1000, 1000}, {.workers = 3, .wait_ns = 0});
  EXPECT_EQ(bounded.assignment.streams.size(), 1u);
  EXPECT_DOUBLE_EQ(bounded.lower_bound_ns, 4000);
}

TEST(BoundedStreams, EmptyDag) {
  const BoundedSchedule bounded = assign_bounded_streams(Dag(), {}, {.workers = 4});
  EXPECT_TRUE(bounded.assignment.streams.empty());
  EXPECT_DOUBLE_EQ(bounded.makespan_ns, 0);
}

TEST(BoundedStreams, RandomDagsKeepEveryPromise) {
  std::mt19937 rng(8);
  for (int round = 0; round < 600; ++round) {
    const Dag dag = testing::random_dag(rng, 80);
    const std::vector<double> costs = testing::random_costs(rng, dag.size());
    const BoundedOptions options{.workers = testing::random_between(rng, 1, 5),
                                 .wait_ns = static_cast<double>(rng() % 3 * 200),
                                 .search_steps = 200};
    const BoundedSchedule bounded = assign_bounded_streams(dag, costs, options);
    const double serial = std::accumulate(costs.begin(), costs.end(), 0.0);

    ASSERT_LE(bounded.assignment.streams.size(), options.workers);
    ASSERT_DOUBLE_EQ(bounded.makespan_ns,
                     simulate_makespan(dag, costs, bounded.assignment, options.wait_ns));
    ASSERT_LE(bounded.makespan_ns, serial * (1 + 1e-12));
    ASSERT_GE(bounded.makespan_ns, bounded.lower_bound_ns * (1 - 1e-12));
    ASSERT_EQ(assign_bounded_streams(dag, costs, options).assignment.streams,
              bounded.assignment.streams)
        << "not deterministic";
  }
}

TEST(BoundedStreams, SearchNeverMakesItWorse) {
  std::mt19937 rng(9);
  double listed = 0;
  double searched = 0;
  for (int round = 0; round < 100; ++round) {
    const Dag dag = testing::random_dag(rng, 80);
    const std::vector<double> costs = testing::random_costs(rng, dag.size());
    BoundedOptions options{.workers = 3, .search_steps = 0};
    const double without = assign_bounded_streams(dag, costs, options).makespan_ns;
    options.search_steps = 1000;
    const double with = assign_bounded_streams(dag, costs, options).makespan_ns;
    ASSERT_LE(with, without);
    listed += without;
    searched += with;
  }
  EXPECT_LT(searched, listed);
}

}  // namespace
}  // namespace nimble
