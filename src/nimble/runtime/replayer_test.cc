#include "nimble/runtime/replayer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "nimble/base/error.h"
#include "nimble/runtime/test_processes.h"
#include "nimble/runtime/test_programs.h"

namespace nimble {
namespace {

using testing::independent_schedule;
using testing::make_schedule;
using testing::NoNewThreads;
using testing::PoolHolder;
using testing::ring_schedule;
using testing::Tasks;

// A ring whose tasks write their numbers down. Only the waits order these writes.
struct Ring {
  Ring(WorkerPool& pool, size_t streams, size_t rounds)
      : tasks(writers(streams * rounds)),
        replayer(ring_schedule(streams, rounds), tasks.bindings(), pool) {}

  std::vector<std::function<void()>> writers(size_t count) {
    std::vector<std::function<void()>> functions;
    for (size_t task = 0; task < count; ++task) {
      functions.push_back([this, task] { written.push_back(task); });
      expected.push_back(task);
    }
    return functions;
  }
  bool replays_right() {
    written.clear();
    replayer.run();
    return written == expected;
  }

  std::vector<size_t> written, expected;
  Tasks tasks;
  Replayer replayer;
};

// On which thread each of a few independent tasks runs.
struct Threads {
  Threads(WorkerPool& pool, size_t count)
      : ids(count),
        tasks(signers()),
        replayer(independent_schedule(count), tasks.bindings(), pool) {}

  std::vector<std::function<void()>> signers() {
    std::vector<std::function<void()>> functions;
    for (pid_t& id : ids) functions.push_back([&id] { id = testing::this_thread_id(); });
    return functions;
  }
  size_t run_and_count() {
    replayer.run();
    return std::set<pid_t>(ids.begin(), ids.end()).size();
  }

  std::vector<pid_t> ids;
  Tasks tasks;
  Replayer replayer;
};

TEST(Replayer, RunsEveryStreamOnItsOwnThreadAndTheFirstHere) {
  WorkerPool pool;
  Threads threads(pool, 4);
  EXPECT_EQ(threads.run_and_count(), 4u);
  EXPECT_EQ(threads.ids[0], testing::this_thread_id());
}

TEST(Replayer, RunsHereWhileTheHelpersAreBusy) {
  WorkerPool pool;
  Threads threads(pool, 4);
  {
    PoolHolder holder(pool);
    EXPECT_EQ(threads.run_and_count(), 1u);
    EXPECT_EQ(threads.ids[0], testing::this_thread_id());
  }
  EXPECT_EQ(threads.run_and_count(), 4u);
}

TEST(Replayer, RunsHereWhileThreadsCannotBeMade) {
  WorkerPool pool;
  Threads threads(pool, 4);
  {
    NoNewThreads no_new_threads;
    EXPECT_EQ(threads.run_and_count(), 1u);
  }
  EXPECT_EQ(threads.run_and_count(), 4u);
}

TEST(Replayer, LeavesOutStreamsWithoutSteps) {
  WorkerPool pool;
  std::vector<int> written;
  Tasks tasks({[&] { written.push_back(0); }, [&] { written.push_back(1); }});
  Replayer replayer(make_schedule({{}, {{TaskId(1), {{StreamId(3), 0}}}}, {}, {{TaskId(0), {}}}}),
                    tasks.bindings(), pool);
  replayer.run();
  EXPECT_EQ(written, (std::vector<int>{0, 1}));
  EXPECT_EQ(replayer.run_timed()[1].stream, StreamId(1));
}

TEST(Replayer, FollowsAStreamThatDepartsFromTheRecordedOrder) {
  WorkerPool pool;
  std::vector<int> written;
  Tasks tasks({[&] { written.push_back(0); }, [&] { written.push_back(1); },
               [&] { written.push_back(2); }});
  const std::vector<Step> reordered = {{TaskId(2), {}}, {TaskId(0), {}}};
  Replayer two_streams(make_schedule({reordered, {{TaskId(1), {{StreamId(0), 1}}}}}),
                       tasks.bindings(), pool);
  two_streams.run();
  EXPECT_EQ(written, (std::vector<int>{2, 0, 1}));

  written.clear();
  std::vector<Step> all = reordered;
  all.push_back({TaskId(1), {}});
  Replayer(make_schedule({all}), tasks.bindings(), pool).run();
  EXPECT_EQ(written, (std::vector<int>{2, 0, 1}));

  written.clear();
  PoolHolder holder(pool);
  two_streams.run();
  EXPECT_EQ(written, (std::vector<int>{2, 0, 1})) << "memory is shared as the streams allow it";
}

TEST(Replayer, AWorkerThatWaitsLongSleeps) {
  WorkerPool pool;
  std::atomic<pid_t> waiting{0};
  std::vector<int> written;
  Tasks tasks({[&] {
                 waiting.wait(0);
                 testing::wait_until_asleep(waiting);
                 written.push_back(0);
               },
               [&] {
                 waiting = testing::this_thread_id();
                 waiting.notify_all();
               },
               [&] { written.push_back(2); }});
  const Schedule schedule =
      make_schedule({{{TaskId(0), {}}}, {{TaskId(1), {}}, {TaskId(2), {{StreamId(0), 0}}}}});
  Replayer replayer(schedule, tasks.bindings(), pool);
  for (int i = 0; i < 5; ++i) {
    waiting = 0;
    written.clear();
    replayer.run();
    EXPECT_EQ(written, (std::vector<int>{0, 2}));
  }
}

TEST(Replayer, WorksWithMoreWorkersThanCores) {
  WorkerPool pool;
  Ring ring(pool, 2 * std::thread::hardware_concurrency() + 13, 4);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(ring.replays_right());
}

TEST(Replayer, ManyCallersShareOnePool) {
  WorkerPool pool;
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (size_t c = 0; c < 8; ++c) {
    callers.emplace_back([&, c] {
      Ring ring(pool, 1 + c % 4, 10);
      for (int i = 0; i < 100; ++i) wrong += !ring.replays_right();
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Replayer, AnExceptionStopsStreamsThatDoNotWaitForIt) {
  WorkerPool pool;
  const pid_t caller = testing::this_thread_id();
  std::atomic<bool> throwing{false};
  bool ran_on = false;
  Tasks tasks({[&] {
                 throwing = true;
                 throwing.notify_all();
                 throw std::runtime_error("stop");
               },
               [&] {
                 // A caller that failed has nothing to do but to wait for this helper.
                 throwing.wait(false);
                 testing::wait_until_asleep(caller);
               },
               [&] { ran_on = true; }});
  const Schedule schedule = make_schedule({{{TaskId(0), {}}}, {{TaskId(1), {}}, {TaskId(2), {}}}});
  Replayer replayer(schedule, tasks.bindings(), pool);
  EXPECT_THROW(replayer.run(), std::runtime_error);
  EXPECT_FALSE(ran_on);
}

TEST(Replayer, TimesAgreeWithTheSchedule) {
  WorkerPool pool;
  constexpr size_t kStreams = 3, kRounds = 5;
  const Schedule schedule = ring_schedule(kStreams, kRounds);
  Tasks tasks(std::vector<std::function<void()>>(kStreams * kRounds, [] {}));
  Replayer replayer(schedule, tasks.bindings(), pool);
  const auto check = [&] {
    const std::vector<TaskTime> times = replayer.run_timed();
    ASSERT_EQ(times.size(), kStreams * kRounds);
    for (size_t task = 0; task < times.size(); ++task) {
      EXPECT_EQ(times[task].task, TaskId(task));
      EXPECT_EQ(times[task].stream, StreamId(task % kStreams));
      EXPECT_LE(times[task].begin_ns, times[task].end_ns);
      if (task > 0) {
        EXPECT_LE(times[task - 1].end_ns, times[task].begin_ns);
      }
    }
  };
  for (int i = 0; i < 20; ++i) check();
  PoolHolder holder(pool);
  check();
}

TEST(Replayer, RefusesAScheduleThatIsNotComplete) {
  WorkerPool pool;
  Tasks one({[] {}});
  Tasks two({[] {}, [] {}});
  const auto make = [&](Schedule schedule, std::vector<TaskBinding> bindings) {
    Replayer(schedule, std::move(bindings), pool);
  };
  EXPECT_THROW(make(independent_schedule(2), one.bindings()), InternalError);
  EXPECT_THROW(make(independent_schedule(1), {{nullptr, nullptr}}), InternalError);
  EXPECT_THROW(make(make_schedule({{{TaskId(0), {}}, {TaskId(0), {}}}}), two.bindings()),
               InternalError);
  Schedule missing = independent_schedule(2);
  missing.streams.pop_back();
  EXPECT_THROW(make(missing, two.bindings()), InternalError);
  EXPECT_THROW(make(make_schedule({{{TaskId(0), {{StreamId(1), 0}}}}}), one.bindings()),
               InternalError);
}

class ReplayerAfterFork : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::kChildMayStartThreads) {
      GTEST_SKIP() << "ThreadSanitizer allows no threads in the child of a threaded process";
    }
  }
  WorkerPool pool_;
};

TEST_F(ReplayerAfterFork, WorksInTheChildOnHelpersOfTheChild) {
  Ring ring(pool_, 3, 5);
  Threads threads(pool_, 3);
  ASSERT_TRUE(ring.replays_right());
  ASSERT_EQ(threads.run_and_count(), 3u);
  EXPECT_TRUE(testing::holds_in_child([&] {
    return ring.replays_right() && threads.run_and_count() == 3 && ring.replays_right();
  }));
  EXPECT_TRUE(ring.replays_right());
}

TEST_F(ReplayerAfterFork, WorksInTheChildWhenAnotherThreadWasReplaying) {
  if (!testing::kOthersMayAllocateDuringFork) {
    GTEST_SKIP() << "AddressSanitizer's allocator does not survive this fork";
  }
  Ring ring(pool_, 3, 5);
  ASSERT_TRUE(ring.replays_right());
  std::atomic<bool> stop{false};
  std::thread other([&] {
    Ring others(pool_, 4, 20);
    while (!stop) EXPECT_TRUE(others.replays_right());
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(testing::holds_in_child([&] { return ring.replays_right(); }));
  }
  stop = true;
  other.join();
}

}  // namespace
}  // namespace nimble
