#include "nimble/schedule/matching.h"

#include <gtest/gtest.h>

#include <functional>

#include "nimble/schedule/random_dag.h"

namespace nimble {
namespace {

// One augmenting path after another.
size_t reference_matching_size(const Dag& dag) {
  std::vector<uint32_t> partner(dag.size(), kUnmatched);
  size_t size = 0;
  for (uint32_t root = 0; root < dag.size(); ++root) {
    std::vector<bool> tried(dag.size(), false);
    const std::function<bool(uint32_t)> augment = [&](uint32_t left) {
      for (uint32_t right : dag.successors[left]) {
        if (tried[right]) continue;
        tried[right] = true;
        if (partner[right] == kUnmatched || augment(partner[right])) {
          partner[right] = left;
          return true;
        }
      }
      return false;
    };
    size += augment(root);
  }
  return size;
}

void expect_valid(const Dag& dag, const Matching& matching) {
  size_t size = 0;
  for (uint32_t left = 0; left < dag.size(); ++left) {
    const uint32_t right = matching.next[left];
    if (right == kUnmatched) continue;
    ++size;
    ASSERT_EQ(matching.previous[right], left);
    const auto& successors = dag.successors[left];
    ASSERT_TRUE(std::binary_search(successors.begin(), successors.end(), right));
  }
  for (uint32_t right = 0; right < dag.size(); ++right) {
    if (matching.previous[right] != kUnmatched) {
      ASSERT_EQ(matching.next[matching.previous[right]], right);
    }
  }
  ASSERT_EQ(size, matching.size);
}

TEST(Matching, EmptyAndEdgeless) {
  EXPECT_EQ(maximum_matching(Dag()).size, 0u);
  EXPECT_EQ(maximum_matching(Dag(5)).size, 0u);
}

TEST(Matching, GivesUpAGreedyPairForAnAugmentingPath) {
  // Greedily 0 takes 2, and 1, which has only 2, stays alone.
  const Matching matching = maximum_matching(make_dag(4, {{0, 2}, {0, 3}, {1, 2}}));
  EXPECT_EQ(matching.size, 2u);
  EXPECT_EQ(matching.next[1], 2u);
  EXPECT_EQ(matching.next[0], 3u);
}

TEST(Matching, IsMaximumOnRandomDags) {
  std::mt19937 rng(3);
  for (int round = 0; round < 4000; ++round) {
    const Dag dag = testing::random_dag(rng, 100);
    const Matching matching = maximum_matching(dag);
    ASSERT_NO_FATAL_FAILURE(expect_valid(dag, matching));
    ASSERT_EQ(matching.size, reference_matching_size(dag));
  }
}

TEST(Matching, IsMaximumWhereAugmentingPathsAreLong) {
  // Left i meets right i and i + 1; greedy choices in a random numbering leave long detours.
  std::mt19937 rng(4);
  for (int round = 0; round < 200; ++round) {
    const auto half = static_cast<uint32_t>(testing::random_between(rng, 1, 150));
    std::vector<uint32_t> shuffled(half);
    for (uint32_t i = 0; i < half; ++i) shuffled[i] = half + i;
    std::shuffle(shuffled.begin(), shuffled.end(), rng);
    testing::RandomEdges edges;
    for (uint32_t i = 0; i < half; ++i) {
      if (testing::random_chance(rng, 0.95)) edges.emplace_back(i, shuffled[i]);
      if (i + 1 < half) edges.emplace_back(i, shuffled[i + 1]);
    }
    const Dag dag = make_dag(2 * half, edges);
    ASSERT_EQ(maximum_matching(dag).size, reference_matching_size(dag));
  }
}

}  // namespace
}  // namespace nimble
