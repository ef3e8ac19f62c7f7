#include "nimble/schedule/capture_plan.h"

#include <gtest/gtest.h>

#include "nimble/schedule/build.h"
#include "nimble/schedule/random_dag.h"

namespace nimble {
namespace {

struct Case {
  Schedule schedule;
  std::vector<bool> may_drop;
};

Case random_case(uint32_t seed) {
  std::mt19937 rng(seed);
  const Graph graph = testing::random_graph(rng, 60);
  const StreamAssignment streams = testing::random_assignment(rng, dependency_dag(graph), 6);
  Case made{build_schedule(graph, streams, {}).schedule, {}};
  for (const Memory& memory : graph.memories)
    made.may_drop.push_back(memory.role == Role::kIntermediate && !memory.is_output);
  return made;
}

constexpr uint32_t kCases = 300;

TEST(CapturePlan, OrdersEveryConflictByBothRules) {
  size_t drops = 0;
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    const Case c = random_case(seed);
    for (DropRule rule : {DropRule::kClock, DropRule::kNever}) {
      const CapturePlan plan = plan_capture(c.schedule, c.may_drop, rule);
      const auto faults = verify_capture(c.schedule, c.may_drop, plan);
      EXPECT_TRUE(faults.empty()) << seed << ": " << faults.front();
      for (const CaptureStep& step : plan.steps) drops += step.drops.size();
    }
  }
  EXPECT_GT(drops, kCases);
}

// How many of the random plans, each changed by `mutate` if that finds something to change, are
// found faulty, and how many were changed.
template <class Mutate>
std::pair<size_t, size_t> caught(const Mutate& mutate) {
  size_t found = 0;
  size_t changed = 0;
  for (uint32_t seed = 0; seed < kCases; ++seed) {
    const Case c = random_case(seed);
    CapturePlan plan = plan_capture(c.schedule, c.may_drop);
    if (!mutate(c, plan)) continue;
    ++changed;
    found += !verify_capture(c.schedule, c.may_drop, plan).empty();
  }
  return {found, changed};
}

TEST(CapturePlan, EveryDroppedWaitIsCaught) {
  const auto [found, changed] = caught([](const Case&, CapturePlan& plan) {
    for (size_t i = plan.steps.size(); i-- > 0;)
      if (!plan.steps[i].waits.empty()) return plan.steps[i].waits.pop_back(), true;
    return false;
  });
  EXPECT_GT(changed, kCases / 2);
  EXPECT_EQ(found, changed);
}

TEST(CapturePlan, EveryMissingJoinIsCaught) {
  const auto [found, changed] = caught([](const Case&, CapturePlan& plan) {
    if (plan.joins.empty()) return false;
    plan.joins.pop_back();
    return true;
  });
  EXPECT_GT(changed, kCases / 2);
  EXPECT_EQ(found, changed);
}

TEST(CapturePlan, ADroppedOutputIsCaught) {
  const auto [found, changed] = caught([](const Case& c, CapturePlan& plan) {
    for (size_t m = 0; m < c.may_drop.size(); ++m)
      if (!c.may_drop[m]) return plan.steps.back().drops.push_back(MemoryId(m)), true;
    return false;
  });
  EXPECT_EQ(found, changed);
}

// Frees at the last use in the order of issue, whatever stream that is on.
TEST(CapturePlan, NaiveFreesAreCaught) {
  const auto [found, changed] = caught([](const Case& c, CapturePlan& plan) {
    for (CaptureStep& step : plan.steps) step.drops.clear();
    std::vector<size_t> last(c.may_drop.size(), plan.steps.size());
    for (size_t i = 0; i < plan.steps.size(); ++i)
      for (const Touch& touch : c.schedule.tasks[plan.steps[i].task.index].touches)
        last[touch.memory.index] = i;
    for (size_t m = 0; m < last.size(); ++m)
      if (c.may_drop[m] && last[m] + 1 < plan.steps.size())
        plan.steps[last[m] + 1].drops.push_back(MemoryId(m));
    return true;
  });
  EXPECT_GT(found, changed / 10);
}

}  // namespace
}  // namespace nimble
