#include "nimble/schedule/segments.h"

#include <gtest/gtest.h>

#include "nimble/graph/validate.h"
#include "nimble/schedule/build.h"
#include "nimble/schedule/capped_streams.h"
#include "nimble/schedule/capture_plan.h"
#include "nimble/schedule/random_dag.h"

namespace nimble {
namespace {

struct Cut {
  Graph graph;
  std::vector<Segment> segments;
  Schedule schedule;
};

Cut random_cut(uint32_t seed) {
  std::mt19937 rng(seed);
  Cut cut{testing::random_graph(rng, 60), {}, {}};
  std::vector<bool> capturable;
  for (size_t i = 0; i < cut.graph.ops.size(); ++i)
    capturable.push_back(!testing::random_chance(rng, 0.1));
  cut.segments = cut_into_segments(cut.graph, capturable);
  const std::vector<Edge> barriers = barriers_between(cut.graph, cut.segments);
  const Dag dag = dependency_dag(cut.graph, barriers);
  cut.schedule = build_schedule(cut.graph, testing::random_assignment(rng, dag, 6), {}, {},
                                {.extra_edges = barriers})
                     .schedule;
  return cut;
}

constexpr uint32_t kCases = 300;

TEST(Segments, AreRangesInTheOrderOfTheirDependencies) {
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    const Cut cut = random_cut(seed);
    uint32_t end = 0;
    for (size_t s = 0; s < cut.segments.size(); ++s) {
      EXPECT_EQ(cut.segments[s].begin, end);
      end = cut.segments[s].end;
      if (s > 0) {
        EXPECT_NE(cut.segments[s].captured, cut.segments[s - 1].captured);
      }
    }
    EXPECT_EQ(end, cut.graph.ops.size());
    for (const Edge& edge : cut.graph.edges) EXPECT_LT(edge.before, edge.after);
    EXPECT_TRUE(verify_schedule(cut.schedule).empty());
  }
}

TEST(Segments, FollowOneAnother) {
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    const Cut cut = random_cut(seed);
    const Dag dag = dependency_dag(cut.graph, barriers_between(cut.graph, cut.segments));
    const Reachability reachability(dag);
    for (size_t s = 0; s + 1 < cut.segments.size(); ++s)
      for (uint32_t a = cut.segments[s].begin; a < cut.segments[s].end; ++a)
        for (uint32_t b = cut.segments[s + 1].begin; b < cut.segments[s + 1].end; ++b)
          EXPECT_TRUE(reachability.reaches(a, b));
  }
}

TEST(Segments, EachIsACaptureWithoutRaces) {
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    const Cut cut = random_cut(seed);
    for (const Segment& segment : cut.segments) {
      const Schedule part = schedule_of(cut.schedule, segment);
      std::vector<bool> may_drop;
      for (const Memory& memory : cut.graph.memories)
        may_drop.push_back(memory.role == Role::kIntermediate && !memory.is_output);
      const auto faults = verify_capture(part, may_drop, plan_capture(part, may_drop));
      EXPECT_TRUE(faults.empty()) << faults.front();
    }
  }
}

TEST(CappedStreams, AreAtMostThatManyAndKeepEveryEdge) {
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    std::mt19937 rng(seed);
    const Graph graph = testing::random_graph(rng, 60);
    const Dag dag = dependency_dag(graph);
    const StreamAssignment unbounded = assign_unbounded_streams(dag);
    for (size_t most : {1, 2, 4}) {
      const StreamAssignment capped = cap_streams(dag, unbounded, most);
      EXPECT_LE(capped.streams.size(), most);
      EXPECT_EQ(execution_order(dag, capped).size(), dag.size());
    }
  }
}

TEST(CappedStreams, ChainsThatRunAtTheSameTimeStayApart) {
  // 0 -> 1 and 2 -> 3 side by side, then 4 alone behind 1: it can share a stream with either.
  const Dag dag = make_dag(6, {{0, 1}, {2, 3}, {1, 4}, {1, 5}});
  const StreamAssignment capped = cap_streams(dag, {{{0, 1, 4}, {2, 3}, {5}}}, 2);
  EXPECT_EQ(capped.streams, (std::vector<std::vector<uint32_t>>{{0, 1, 4}, {2, 3, 5}}));
}

}  // namespace
}  // namespace nimble
