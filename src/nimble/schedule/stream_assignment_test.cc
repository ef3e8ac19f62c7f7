#include "nimble/schedule/stream_assignment.h"

#include <gtest/gtest.h>

#include <bit>

#include "nimble/base/error.h"
#include "nimble/schedule/matching.h"
#include "nimble/schedule/random_dag.h"

namespace nimble {
namespace {

size_t brute_force_width(const Dag& dag) {
  const Reachability reachability(dag);
  std::vector<uint32_t> comparable(dag.size(), 0);
  for (uint32_t a = 0; a < dag.size(); ++a)
    for (uint32_t b = 0; b < dag.size(); ++b)
      if (reachability.ordered(a, b)) comparable[a] |= 1u << b;
  int width = 0;
  for (uint32_t set = 0; set < 1u << dag.size(); ++set) {
    bool antichain = true;
    for (uint32_t node = 0; node < dag.size() && antichain; ++node)
      antichain = !(set >> node & 1) || (comparable[node] & set) == 0;
    if (antichain) width = std::max(width, std::popcount(set));
  }
  return static_cast<size_t>(width);
}

TEST(UnboundedStreams, DiamondNeedsTwoStreamsAndTwoWaits) {
  const Dag dag = make_dag(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  const StreamAssignment assignment = assign_unbounded_streams(dag);
  EXPECT_EQ(assignment.streams, (std::vector<std::vector<uint32_t>>{{0, 1, 3}, {2}}));
  EXPECT_EQ(count_waits(dag, assignment), 2u);
}

TEST(UnboundedStreams, EmptyDagHasNoStream) {
  EXPECT_TRUE(assign_unbounded_streams(Dag()).streams.empty());
}

TEST(UnboundedStreams, ChainsThatFollowOneAnotherShareAStream) {
  // Three diamonds in a row: every one has a side branch, and all side branches fit on one stream.
  const Dag dag = make_dag(10, {{0, 1},
                                {0, 2},
                                {1, 3},
                                {2, 3},
                                {3, 4},
                                {3, 5},
                                {4, 6},
                                {5, 6},
                                {6, 7},
                                {6, 8},
                                {7, 9},
                                {8, 9}});
  const StreamAssignment assignment = assign_unbounded_streams(dag);
  EXPECT_EQ(assignment.streams.size(), 2u);
  EXPECT_EQ(count_waits(dag, assignment), 6u);
}

TEST(UnboundedStreams, RandomDagsGetTheFewestWaitsAndLoseNoConcurrency) {
  std::mt19937 rng(5);
  for (int round = 0; round < 3000; ++round) {
    const Dag dag = testing::random_dag(rng, 60);
    const Reachability reachability(dag);
    const Dag reduced = minimum_equivalent_graph(dag, reachability);
    const StreamAssignment assignment = assign_unbounded_streams(dag);

    ASSERT_EQ(execution_order(dag, assignment).size(), dag.size());
    for (const auto& stream : assignment.streams) {
      ASSERT_FALSE(stream.empty());
      for (size_t i = 1; i < stream.size(); ++i)
        ASSERT_TRUE(reachability.reaches(stream[i - 1], stream[i])) << "ordered by us only";
    }
    const size_t matched = maximum_matching(reduced).size;
    ASSERT_EQ(count_waits(reduced, assignment), reduced.edge_count() - matched);
    ASSERT_GE(assignment.streams.size(), degree_of_concurrency(reachability, dag.size()));
    ASSERT_LE(assignment.streams.size(), dag.size() - matched);
  }
}

TEST(UnboundedStreams, DegreeOfConcurrencyIsTheLargestAntichain) {
  EXPECT_EQ(degree_of_concurrency(Reachability(Dag()), 0), 0u);
  std::mt19937 rng(6);
  for (int round = 0; round < 1000; ++round) {
    const Dag dag = testing::random_dag(rng, 13);
    ASSERT_EQ(degree_of_concurrency(Reachability(dag), dag.size()), brute_force_width(dag));
  }
}

TEST(ExecutionOrder, KeepsEdgesAndStreamOrder) {
  std::mt19937 rng(7);
  for (int round = 0; round < 500; ++round) {
    const Dag dag = testing::random_dag(rng, 60);
    const StreamAssignment assignment = testing::random_assignment(rng, dag, 6);
    const std::vector<uint32_t> order = execution_order(dag, assignment);
    std::vector<size_t> position(dag.size());
    for (size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
    for (uint32_t from = 0; from < dag.size(); ++from)
      for (uint32_t to : dag.successors[from]) ASSERT_LT(position[from], position[to]);
    for (const auto& stream : assignment.streams)
      for (size_t i = 1; i < stream.size(); ++i)
        ASSERT_LT(position[stream[i - 1]], position[stream[i]]);
  }
}

TEST(ExecutionOrder, RejectsAssignmentsThatAreNotOne) {
  const Dag dag = make_dag(3, {{0, 1}, {1, 2}});
  EXPECT_THROW(execution_order(dag, {{{0, 1}}}), InternalError) << "a node is missing";
  EXPECT_THROW(execution_order(dag, {{{0, 1, 2}, {1}}}), InternalError) << "a node is twice there";
  EXPECT_THROW(execution_order(dag, {{{0, 1, 3}}}), InternalError) << "there is no node 3";
  EXPECT_THROW(execution_order(dag, {{{0, 2, 1}}}), InternalError) << "against an edge";
  EXPECT_THROW(execution_order(dag, {{{2, 0}, {1}}}), InternalError) << "against a path";
}

}  // namespace
}  // namespace nimble
