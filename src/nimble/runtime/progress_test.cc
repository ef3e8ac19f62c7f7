#include "nimble/runtime/progress.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace nimble {
namespace {

using std::chrono::nanoseconds;

class ProgressWaiting : public ::testing::TestWithParam<nanoseconds> {};

INSTANTIATE_TEST_SUITE_P(, ProgressWaiting,
                         ::testing::Values(nanoseconds(0), nanoseconds(1), tuning::kWaitSpin,
                                           nanoseconds(std::chrono::seconds(10))),
                         [](const auto& info) {
                           return "Spinning" + std::to_string(info.param.count()) + "ns";
                         });

TEST_P(ProgressWaiting, SeesWhatWasWrittenBeforeTheStep) {
  constexpr uint32_t kSteps = 300;
  std::vector<uint32_t> written(kSteps + 1);
  Progress there, back;
  std::thread other([&] {
    for (uint32_t step = 1; step <= kSteps; ++step) {
      there.wait_for(step, GetParam());
      EXPECT_EQ(written[step], step);
      back.publish(step);
    }
  });
  for (uint32_t step = 1; step <= kSteps; ++step) {
    written[step] = step;
    there.publish(step);
    back.wait_for(step, GetParam());
  }
  other.join();
}

TEST_P(ProgressWaiting, WakesEveryWaiterAtItsOwnStep) {
  Progress progress, arrived[3];
  std::vector<std::thread> waiters;
  for (uint32_t target = 1; target <= 3; ++target) {
    waiters.emplace_back([&, target] {
      progress.wait_for(target, GetParam());
      arrived[target - 1].publish(1);
    });
  }
  for (uint32_t step = 1; step <= 3; ++step) {
    progress.publish(step);
    arrived[step - 1].wait_for(1, GetParam());
  }
  for (std::thread& waiter : waiters) waiter.join();
}

TEST_P(ProgressWaiting, CountsOnBehindTheLargestNumber) {
  constexpr uint32_t kStart = UINT32_MAX - 5;
  Progress progress(kStart);
  progress.wait_for(kStart - 3, GetParam());  // long reached
  std::thread publisher([&] {
    for (uint32_t step = 1; step <= 10; ++step) progress.publish(kStart + step);
  });
  progress.wait_for(kStart + 10, GetParam());
  publisher.join();
}

TEST(Progress, HasACacheLineOfItsOwn) {
  EXPECT_EQ(sizeof(Progress), tuning::kCacheLine);
  EXPECT_EQ(alignof(Progress), tuning::kCacheLine);
}

}  // namespace
}  // namespace nimble
