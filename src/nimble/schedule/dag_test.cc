#include "nimble/schedule/dag.h"

#include <gtest/gtest.h>

#include "nimble/base/error.h"
#include "nimble/schedule/random_dag.h"

namespace nimble {
namespace {

using Closure = std::vector<std::vector<bool>>;

Closure brute_force_closure(const Dag& dag) {
  Closure reaches(dag.size(), std::vector<bool>(dag.size(), false));
  for (uint32_t from = 0; from < dag.size(); ++from)
    for (uint32_t to : dag.successors[from]) reaches[from][to] = true;
  for (size_t via = 0; via < dag.size(); ++via)
    for (size_t from = 0; from < dag.size(); ++from)
      if (reaches[from][via])
        for (size_t to = 0; to < dag.size(); ++to)
          if (reaches[via][to]) reaches[from][to] = true;
  return reaches;
}

TEST(Dag, SortsSuccessorsAndDropsRepeats) {
  const Dag dag = make_dag(4, {{0, 3}, {0, 1}, {1, 3}, {0, 3}});
  EXPECT_EQ(dag.successors[0], (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(dag.edge_count(), 3u);
  EXPECT_EQ(predecessors(dag)[3], (std::vector<uint32_t>{0, 1}));
}

TEST(Dag, RejectsEdgesAgainstTheNumbering) {
  EXPECT_THROW(make_dag(3, {{2, 1}}), InternalError);
  EXPECT_THROW(make_dag(3, {{1, 1}}), InternalError);
  EXPECT_THROW(make_dag(3, {{1, 3}}), InternalError);
}

TEST(Dag, EmptyHasNothing) {
  const Dag dag;
  const Reachability reachability(dag);
  EXPECT_EQ(minimum_equivalent_graph(dag, reachability).size(), 0u);
}

TEST(Dag, ShortcutIsNotInTheMinimumEquivalentGraph) {
  const Dag dag = make_dag(4, {{0, 1}, {1, 2}, {0, 2}, {2, 3}, {0, 3}});
  const Dag reduced = minimum_equivalent_graph(dag, Reachability(dag));
  EXPECT_EQ(reduced.successors, make_dag(4, {{0, 1}, {1, 2}, {2, 3}}).successors);
}

TEST(Dag, ReachabilityEqualsFloydWarshall) {
  std::mt19937 rng(1);
  for (int round = 0; round < 300; ++round) {
    const Dag dag = testing::random_dag(rng, 90);
    const Closure expected = brute_force_closure(dag);
    const Reachability reachability(dag);
    for (uint32_t a = 0; a < dag.size(); ++a)
      for (uint32_t b = 0; b < dag.size(); ++b) {
        ASSERT_EQ(reachability.reaches(a, b), expected[a][b]) << a << " " << b;
        ASSERT_EQ(reachability.ordered(a, b), expected[a][b] || expected[b][a]);
      }
  }
}

TEST(Dag, MinimumEquivalentGraphKeepsExactlyTheEdgesWithoutDetour) {
  std::mt19937 rng(2);
  for (int round = 0; round < 1000; ++round) {
    const Dag dag = testing::random_dag(rng, 40);
    const Closure reaches = brute_force_closure(dag);
    const Dag reduced = minimum_equivalent_graph(dag, Reachability(dag));
    Dag expected(dag.size());
    for (uint32_t from = 0; from < dag.size(); ++from)
      for (uint32_t to : dag.successors[from]) {
        bool detour = false;
        for (uint32_t via = 0; via < dag.size(); ++via)
          detour |= reaches[from][via] && reaches[via][to];
        if (!detour) expected.successors[from].push_back(to);
      }
    ASSERT_EQ(reduced.successors, expected.successors);
    ASSERT_EQ(brute_force_closure(reduced), reaches);
  }
}

}  // namespace
}  // namespace nimble
