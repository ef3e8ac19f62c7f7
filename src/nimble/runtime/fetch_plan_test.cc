#include "nimble/runtime/fetch_plan.h"

#include <gtest/gtest.h>

#include <utility>

#include "nimble/runtime/test_programs.h"

namespace nimble {
namespace {

constexpr size_t kNoLimit = 1 << 30;

Schedule streams(const std::vector<std::vector<uint32_t>>& tasks) {
  std::vector<std::vector<Step>> steps(tasks.size());
  for (size_t stream = 0; stream < tasks.size(); ++stream)
    for (uint32_t task : tasks[stream]) steps[stream].push_back({TaskId(task), {}});
  return testing::make_schedule(std::move(steps));
}

const WeightUse kNothing;

TEST(FetchPlan, ATaskFetchesWhatTheNextOnItsStreamReads) {
  const std::vector<WeightUse> uses = {{0, 0, 256}, {1, 64, 128}, {2, 0, 640}, {3, 0, 64}};
  EXPECT_EQ(plan_fetching(streams({{0, 2}, {1, 3}}), uses, kNoLimit),
            (std::vector<WeightUse>{uses[2], uses[3], kNothing, kNothing}));
}

TEST(FetchPlan, TasksOnTheSameWeightsShareTheFetchingInWholeLines) {
  const WeightUse weights{0, 0, 256};
  const std::vector<WeightUse> uses = {weights, weights, weights, {1, 128, 128 + 290}};
  EXPECT_EQ(plan_fetching(streams({{0, 1, 2, 3}}), uses, kNoLimit),
            (std::vector<WeightUse>{{1, 128, 192}, {1, 192, 320}, {1, 320, 418}, kNothing}));
}

TEST(FetchPlan, OtherColumnsOfTheSameOpAreOtherWeights) {
  const std::vector<WeightUse> uses = {{0, 0, 256}, {0, 256, 512}};
  EXPECT_EQ(plan_fetching(streams({{0, 1}}), uses, kNoLimit),
            (std::vector<WeightUse>{uses[1], kNothing}));
}

TEST(FetchPlan, TasksWithoutWeightsAreLookedPast) {
  const std::vector<WeightUse> uses = {{0, 0, 64}, kNothing, {2, 0, 64}};
  EXPECT_EQ(plan_fetching(streams({{0, 1, 2}}), uses, kNoLimit),
            (std::vector<WeightUse>{uses[2], kNothing, kNothing}));
}

TEST(FetchPlan, NoMoreThanTheLimit) {
  const std::vector<WeightUse> uses = {{0, 0, 64}, {1, 0, 4096}};
  EXPECT_EQ(plan_fetching(streams({{0, 1}}), uses, 1024),
            (std::vector<WeightUse>{{1, 0, 1024}, kNothing}));
}

}  // namespace
}  // namespace nimble
