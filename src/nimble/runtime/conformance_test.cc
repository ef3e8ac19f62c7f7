// What must hold for every way of replaying.

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <stdexcept>
#include <string>

#include "nimble/runtime/replayer.h"
#include "nimble/runtime/test_programs.h"
#include "nimble/schedule/build.h"
#include "nimble/schedule/many_streams.h"
#include "nimble/schedule/one_stream.h"
#include "nimble/schedule/random_dag.h"
#include "nimble/schedule/test_network.h"
#include "nimble/schedule/verify.h"

namespace nimble {
namespace {

using testing::MixingProgram;
using testing::PoolHolder;
using testing::Tasks;

struct Way {
  std::string name;
  size_t streams = 1;  // 0: as many as the program has room for
  bool sequential_oracle = false;
  bool helpers_are_busy = false;
  bool memory_is_limited = false;  // to what one stream needs
};

void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}

const Way kWays[] = {
    {.name = "Oracle", .sequential_oracle = true},
    {.name = "OneStream", .streams = 1},
    {.name = "TwoStreams", .streams = 2},
    {.name = "ThreeStreams", .streams = 3},
    {.name = "FourStreams", .streams = 4},
    {.name = "UnboundedStreams", .streams = 0},
    {.name = "ThreeStreamsLimitedMemory", .streams = 3, .memory_is_limited = true},
    {.name = "ThreeStreamsLimitedMemoryHelpersBusy",
     .streams = 3,
     .helpers_are_busy = true,
     .memory_is_limited = true},
    {.name = "FourStreamsHelpersBusy", .streams = 4, .helpers_are_busy = true},
    {.name = "UnboundedStreamsHelpersBusy", .streams = 0, .helpers_are_busy = true},
};

class ReplayConformance : public ::testing::TestWithParam<Way> {
 protected:
  ReplayConformance() {
    if (GetParam().helpers_are_busy) holder_.emplace(pool_);
  }

  Schedule schedule_of(const Graph& graph) {
    if (!GetParam().memory_is_limited) return build_schedule(graph, assign(graph), {}).schedule;
    const size_t limit = build_schedule(graph, single_stream(graph), {}).schedule.arena_bytes;
    const std::vector<double> costs = testing::random_costs(rng_, graph.ops.size());
    const ManyStreamsOptions options{
        .workers = GetParam().streams, .search_steps = 50, .memory_limit_bytes = limit};
    return build_many_streams(graph, costs, options).built.schedule;
  }

  StreamAssignment assign(const Graph& graph) {
    if (GetParam().sequential_oracle) return single_stream(graph);
    const Dag dag = dependency_dag(graph);
    if (GetParam().streams == 0) return assign_unbounded_streams(dag);
    return testing::random_assignment(rng_, dag, GetParam().streams);
  }

  // Something to call for each replay.
  std::function<void()> replay(const Schedule& schedule, std::vector<TaskBinding> bindings) {
    if (GetParam().sequential_oracle) return [=] { replay_sequentially(bindings); };
    auto replayer = std::make_shared<Replayer>(schedule, std::move(bindings), pool_);
    return [=] { replayer->run(); };
  }

  std::mt19937 rng_{20201206};
  WorkerPool pool_;
  std::optional<PoolHolder> holder_;
};

INSTANTIATE_TEST_SUITE_P(, ReplayConformance, ::testing::ValuesIn(kWays),
                         [](const auto& info) { return info.param.name; });

TEST_P(ReplayConformance, RandomProgramsGiveWhatTheRecordedOrderGives) {
  for (int round = 0; round < 400; ++round) {
    const Graph graph = testing::random_graph(rng_, 40);
    const Schedule schedule = schedule_of(graph);
    ASSERT_EQ(verify_schedule(schedule), std::vector<std::string>{});
    MixingProgram program(graph, schedule);
    const auto replay_here = replay(schedule, program.bindings());

    // No memory is shared here, so only the recorded order matters.
    const std::vector<bool> unplanned(graph.memories.size(), true);
    const Schedule apart = build_schedule(graph, single_stream(graph), {}, unplanned).schedule;
    MixingProgram expected(graph, apart);
    for (int replays = 0; replays < 3; ++replays) {
      replay_here();
      replay_sequentially(expected.bindings());
      const auto [by_op, memories] = program.results();
      const auto [expected_by_op, expected_memories] = expected.results();
      ASSERT_EQ(by_op, expected_by_op) << "program " << round << ", replay " << replays;
      for (size_t m = 0; m < memories.size(); ++m) {
        if (!schedule.placements[m].in_arena) {
          ASSERT_EQ(memories[m], expected_memories[m]);
        }
      }
    }
  }
}

TEST_P(ReplayConformance, AProgramWithoutTasksDoesNothing) {
  replay(Schedule{}, {})();
  Schedule empty_streams;
  empty_streams.streams.resize(3);
  replay(empty_streams, {})();
}

TEST_P(ReplayConformance, AnExceptionReachesTheCallerAndTheNextReplayIsRight) {
  const size_t streams = GetParam().streams == 0 ? 8 : GetParam().streams;
  const size_t rounds = 3;
  for (size_t culprit = 0; culprit < streams * rounds; ++culprit) {
    std::vector<size_t> ran;  // the ring orders every access
    bool fail = true;
    std::vector<std::function<void()>> functions;
    for (size_t task = 0; task < streams * rounds; ++task) {
      functions.push_back([&, task] {
        if (fail && task == culprit) throw std::runtime_error("task " + std::to_string(task));
        ran.push_back(task);
      });
    }
    Tasks tasks(functions);
    const auto replay_here = replay(testing::ring_schedule(streams, rounds), tasks.bindings());
    for (int attempt = 0; attempt < 3; ++attempt) {
      fail = true;
      ran.clear();
      try {
        replay_here();
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(error.what(), "task " + std::to_string(culprit));
      }
      EXPECT_EQ(ran.size(), culprit) << "no task ran after the one that failed";
      fail = false;
      ran.clear();
      replay_here();
      ASSERT_EQ(ran.size(), streams * rounds);
      EXPECT_TRUE(std::is_sorted(ran.begin(), ran.end()));
    }
  }
}

TEST_P(ReplayConformance, OneOfManyExceptionsIsThrown) {
  const size_t streams = std::max<size_t>(GetParam().streams, 8);
  std::vector<std::function<void()>> functions(streams,
                                               [] { throw std::runtime_error("all at once"); });
  Tasks tasks(functions);
  const auto replay_here = replay(testing::independent_schedule(streams), tasks.bindings());
  for (int attempt = 0; attempt < 50; ++attempt) EXPECT_THROW(replay_here(), std::runtime_error);
}

TEST_P(ReplayConformance, ATaskMayReplayAnotherProgramOnTheSamePool) {
  std::atomic<int> inner_runs{0};
  Tasks inner_tasks(std::vector<std::function<void()>>(3, [&] { ++inner_runs; }));
  // One for each task: a replayer has one caller at a time.
  std::vector<std::function<void()>> outer_functions;
  for (int i = 0; i < 4; ++i) {
    outer_functions.push_back(replay(testing::independent_schedule(3), inner_tasks.bindings()));
  }
  Tasks outer_tasks(outer_functions);
  const auto outer = replay(testing::independent_schedule(4), outer_tasks.bindings());
  for (int i = 0; i < 20; ++i) outer();
  EXPECT_EQ(inner_runs, 20 * 4 * 3);
}

// Parts of ops, on images whose channels several ops write.
TEST(ReplayOfParts, GivesWhatTheRecordedOrderGives) {
  std::mt19937 rng(70);
  WorkerPool pool;
  for (int round = 0; round < 4; ++round) {
    const auto network = testing::random_network(rng, 1, 30000);
    const Graph& graph = network.graph;
    const std::vector<bool> unplanned(graph.memories.size(), true);
    const Schedule apart = build_schedule(graph, single_stream(graph), {}, unplanned).schedule;
    MixingProgram expected(graph, apart);
    replay_sequentially(expected.bindings());
    const BuiltSchedule one = build_one_stream(graph, 3, network.costs);
    ManyStreamsOptions options{.workers = 3};
    const BuiltSchedule many = build_many_streams(graph, network.costs, options).built;
    options.memory_limit_bytes = one.schedule.arena_bytes;
    const BuiltSchedule limited = build_many_streams(graph, network.costs, options).built;
    for (const BuiltSchedule* built : {&one, &many, &limited}) {
      ASSERT_EQ(verify_schedule(built->schedule), std::vector<std::string>{});
      MixingProgram program(graph, built->schedule);
      Replayer(built->schedule, program.bindings(), pool).run();
      ASSERT_EQ(program.results().first, expected.results().first);
    }
  }
}

}  // namespace
}  // namespace nimble
