#include "nimble/runtime/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "nimble/runtime/test_processes.h"
#include "nimble/runtime/test_programs.h"

namespace nimble {
namespace {

using testing::NoNewThreads;
using testing::PoolHolder;

// Who ran, by worker. Without atomics: the pool itself must order these accesses.
struct Attendance {
  std::vector<int> runs;
  std::vector<pid_t> threads;

  explicit Attendance(size_t workers) : runs(workers), threads(workers) {}

  static void sign(void* context, size_t worker) {
    auto& self = *static_cast<Attendance*>(context);
    ++self.runs[worker];
    self.threads[worker] = testing::this_thread_id();
  }
  bool all_signed_once() const { return runs == std::vector<int>(runs.size(), 1); }
};

bool helpers_work(WorkerPool& pool, size_t helpers) {
  Attendance attendance(helpers + 1);
  return pool.try_run(helpers, Attendance::sign, &attendance) && attendance.all_signed_once();
}

TEST(WorkerPool, RunsTheJobOnceOnEveryWorker) {
  WorkerPool pool;
  for (size_t helpers : {0, 1, 3, 2, 7, 0, 1}) {
    for (int i = 0; i < 100; ++i) {
      Attendance attendance(helpers + 1);
      ASSERT_TRUE(pool.try_run(helpers, Attendance::sign, &attendance));
      EXPECT_TRUE(attendance.all_signed_once());
      EXPECT_EQ(attendance.threads[0], testing::this_thread_id());
    }
  }
}

TEST(WorkerPool, KeepsItsThreads) {
  WorkerPool pool;
  Attendance attendance(4);
  pool.try_run(3, Attendance::sign, &attendance);
  const std::vector<pid_t> first = attendance.threads;
  for (int i = 0; i < 20; ++i) {
    pool.try_run(3, Attendance::sign, &attendance);
    EXPECT_EQ(attendance.threads, first);
  }
}

TEST(WorkerPool, PreparesEveryThreadOnce) {
  std::atomic<int> prepared{0};
  {
    WorkerPool pool([&] { ++prepared; });
    for (size_t helpers : {0, 2, 1, 3, 3}) EXPECT_TRUE(helpers_work(pool, helpers));
  }
  EXPECT_EQ(prepared, 3);
}

TEST(WorkerPool, AnIdleHelperSleeps) {
  WorkerPool pool;
  for (int i = 0; i < 3; ++i) {
    Attendance attendance(3);
    ASSERT_TRUE(pool.try_run(2, Attendance::sign, &attendance));
    testing::wait_until_asleep(attendance.threads[1]);
    testing::wait_until_asleep(attendance.threads[2]);
  }
}

TEST(WorkerPool, ACallerThatWaitsForAHelperSleeps) {
  WorkerPool pool;
  pid_t caller = testing::this_thread_id();
  const auto job = [](void* context, size_t worker) {
    if (worker == 1) testing::wait_until_asleep(*static_cast<pid_t*>(context));
  };
  EXPECT_TRUE(pool.try_run(1, job, &caller));
}

TEST(WorkerPool, RefusesASecondCaller) {
  WorkerPool pool;
  {
    PoolHolder holder(pool);
    Attendance attendance(2);
    EXPECT_FALSE(pool.try_run(1, Attendance::sign, &attendance));
    EXPECT_EQ(attendance.runs, std::vector<int>(2, 0));
    EXPECT_TRUE(helpers_work(pool, 0)) << "needs nobody";
  }
  EXPECT_TRUE(helpers_work(pool, 1));
}

TEST(WorkerPool, RefusesItsOwnWorkers) {
  struct Nested {
    WorkerPool pool;
    std::vector<int> refused = std::vector<int>(3);
  } nested;
  const auto job = [](void* context, size_t worker) {
    auto& nested = *static_cast<Nested*>(context);
    nested.refused[worker] = !helpers_work(nested.pool, 1);
  };
  EXPECT_TRUE(nested.pool.try_run(2, job, &nested));
  EXPECT_EQ(nested.refused, std::vector<int>(3, 1));
}

TEST(WorkerPool, RefusesWhileThreadsCannotBeMade) {
  WorkerPool pool;
  EXPECT_TRUE(helpers_work(pool, 1));
  {
    NoNewThreads no_new_threads;
    Attendance attendance(4);
    EXPECT_FALSE(pool.try_run(3, Attendance::sign, &attendance));
    EXPECT_EQ(attendance.runs, std::vector<int>(4, 0));
    EXPECT_TRUE(helpers_work(pool, 1)) << "has that one already";
  }
  EXPECT_TRUE(helpers_work(pool, 3));
}

TEST(WorkerPool, EndsWithoutEverHavingRun) {
  WorkerPool pool;
}

TEST(WorkerPool, ServesOneOfManyCallersAtATime) {
  WorkerPool pool;
  std::atomic<int> inside{0};
  std::atomic<bool> overlapped{false};
  struct Shared {
    std::atomic<int>& inside;
    std::atomic<bool>& overlapped;
  } shared{inside, overlapped};
  const auto job = [](void* context, size_t worker) {
    auto& shared = *static_cast<Shared*>(context);
    if (worker == 0 && ++shared.inside != 1) shared.overlapped = true;
    if (worker == 0) --shared.inside;
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int run = 0; run < 200; ++run) pool.try_run(2, job, &shared);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_FALSE(overlapped);
}

class WorkerPoolAfterFork : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::kChildMayStartThreads) {
      GTEST_SKIP() << "ThreadSanitizer allows no threads in the child of a threaded process";
    }
  }
};

TEST_F(WorkerPoolAfterFork, TheChildMakesItsOwnHelpers) {
  WorkerPool pool;
  ASSERT_TRUE(helpers_work(pool, 2));
  EXPECT_TRUE(testing::holds_in_child([&] {
    return helpers_work(pool, 2) && helpers_work(pool, 3) &&
           testing::holds_in_child([&] { return helpers_work(pool, 1); });
  }));
  EXPECT_TRUE(helpers_work(pool, 2)) << "the parent keeps its own";
}

TEST_F(WorkerPoolAfterFork, TheChildIsNotHeldUpByACallerThatItDoesNotHave) {
  WorkerPool pool;
  for (int i = 0; i < 10; ++i) {
    PoolHolder holder(pool);
    EXPECT_TRUE(testing::holds_in_child([&] { return helpers_work(pool, 2); }));
  }
}

TEST_F(WorkerPoolAfterFork, ForkAtAnyMomentOfAnotherThreadsRuns) {
  if (!testing::kOthersMayAllocateDuringFork) {
    GTEST_SKIP() << "AddressSanitizer's allocator does not survive this fork";
  }
  WorkerPool pool;
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) {
      for (size_t helpers : {1, 2}) helpers_work(pool, helpers);
      WorkerPool short_lived;
      helpers_work(short_lived, 1);
    }
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(testing::holds_in_child([&] { return helpers_work(pool, 2); }));
  }
  stop = true;
  other.join();
}

TEST_F(WorkerPoolAfterFork, ManyThreadsOfTheChildMayBeTheFirst) {
  WorkerPool pool;
  ASSERT_TRUE(helpers_work(pool, 2));
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(testing::holds_in_child([&] {
      std::vector<std::thread> callers;
      for (int c = 0; c < 4; ++c) callers.emplace_back([&] { helpers_work(pool, 2); });
      for (std::thread& caller : callers) caller.join();
      return helpers_work(pool, 2);
    }));
  }
}

TEST_F(WorkerPoolAfterFork, TheChildMayDestroyThePool) {
  auto unused_in_child = std::make_unique<WorkerPool>();
  auto used_in_child = std::make_unique<WorkerPool>();
  ASSERT_TRUE(helpers_work(*unused_in_child, 2));
  ASSERT_TRUE(helpers_work(*used_in_child, 2));
  EXPECT_TRUE(testing::holds_in_child([&] {
    const bool worked = helpers_work(*used_in_child, 2);
    used_in_child.reset();
    unused_in_child.reset();
    return worked;
  }));
}

// The process re-executes itself, so the exit is that of a program that only used a pool.
TEST(WorkerPoolDeathTest, AProcessMayExitWithHelpersParkedOrSpinning) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto use_and_exit = [](bool parked) {
    alarm(60);
    static WorkerPool& never_destroyed = *std::make_unique<WorkerPool>().release();
    Attendance attendance(3);
    never_destroyed.try_run(2, Attendance::sign, &attendance);
    if (parked) testing::wait_until_asleep(attendance.threads[2]);
    std::exit(attendance.all_signed_once() ? 0 : 1);
  };
  EXPECT_EXIT(use_and_exit(true), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(use_and_exit(false), ::testing::ExitedWithCode(0), "");
}

TEST(WorkerPoolDeathTest, AStaticPoolEndsWithTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto use_and_exit = [] {
    alarm(60);
    static WorkerPool destroyed_at_exit;
    std::exit(helpers_work(destroyed_at_exit, 2) ? 0 : 1);
  };
  EXPECT_EXIT(use_and_exit(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace nimble
