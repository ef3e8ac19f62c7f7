#include "nimble/schedule/memory_plan.h"

#include <gtest/gtest.h>

#include "nimble/base/error.h"
#include "nimble/schedule/build.h"
#include "nimble/schedule/random_dag.h"
#include "nimble/schedule/verify.h"

namespace nimble {
namespace {

// Tasks on one stream, each with the memories that it writes (all of 64 bytes).
Schedule serial_schedule(const std::vector<std::vector<uint32_t>>& memories_by_task,
                         size_t memory_count) {
  Schedule schedule;
  schedule.streams.resize(1);
  schedule.placements.resize(memory_count);
  for (uint32_t task = 0; task < memories_by_task.size(); ++task) {
    Task& added = schedule.tasks.emplace_back();
    for (uint32_t memory : memories_by_task[task])
      added.touches.push_back({MemoryId(memory), {0, 64}, true});
    schedule.streams[0].push_back({TaskId(task), {}});
  }
  return schedule;
}

std::vector<ArenaRequest> requests_of(const std::vector<size_t>& bytes) {
  std::vector<ArenaRequest> requests;
  for (size_t i = 0; i < bytes.size(); ++i) requests.push_back({MemoryId(i), bytes[i]});
  return requests;
}

TEST(PlanMemory, NothingRequestedNeedsNoArena) {
  Schedule schedule = serial_schedule({{0}}, 1);
  EXPECT_EQ(plan_memory(schedule, {}).lower_bound_bytes, 0u);
  EXPECT_EQ(schedule.arena_bytes, 0u);
  EXPECT_FALSE(schedule.placements[0].in_arena);
}

TEST(PlanMemory, AChainAlternatesBetweenTwoPlaces) {
  Schedule schedule = serial_schedule({{0, 1}, {1, 2}, {2, 3}, {3, 4}}, 5);
  const MemoryPlanStats stats = plan_memory(schedule, requests_of({64, 64, 64, 64, 64}));
  EXPECT_EQ(stats.lower_bound_bytes, 128u);
  EXPECT_EQ(schedule.arena_bytes, 128u);
  EXPECT_EQ(verify_schedule(schedule), std::vector<std::string>());
}

TEST(PlanMemory, RecordedOneAfterTheOtherIsNotEnoughOnTwoStreams) {
  Schedule schedule = serial_schedule({{0}, {1}}, 2);
  schedule.streams = {{{TaskId(0), {}}}, {{TaskId(1), {}}}};
  plan_memory(schedule, requests_of({64, 64}));
  EXPECT_EQ(schedule.arena_bytes, 128u);

  schedule.streams[1][0].waits = {{StreamId(0), 0}};
  plan_memory(schedule, requests_of({64, 64}));
  EXPECT_EQ(schedule.arena_bytes, 64u);
}

TEST(PlanMemory, TheOrderOfTheStreamCountsNotTheRecordedOne) {
  // Memory 0 is used by tasks 0 and 2, memory 1 by task 1, which the stream runs last.
  Schedule schedule = serial_schedule({{0}, {1}, {0}}, 2);
  plan_memory(schedule, requests_of({64, 64}));
  EXPECT_EQ(schedule.arena_bytes, 128u);
  std::swap(schedule.streams[0][1], schedule.streams[0][2]);
  const MemoryPlanStats stats = plan_memory(schedule, requests_of({64, 64}));
  EXPECT_EQ(schedule.arena_bytes, 64u);
  EXPECT_EQ(stats.lower_bound_bytes, 64u);
}

TEST(PlanMemory, OffsetsAreAligned) {
  Schedule schedule = serial_schedule({{0, 1, 2}}, 3);
  const MemoryPlanStats stats = plan_memory(schedule, requests_of({64, 100, 65}), 64);
  for (const Placement& placement : schedule.placements) EXPECT_EQ(placement.offset % 64, 0u);
  EXPECT_EQ(schedule.arena_bytes, 64u + 128u + 128u);
  EXPECT_EQ(stats.lower_bound_bytes, 64u + 100u + 65u);
  EXPECT_EQ(schedule.placements[1].bytes, 100u);
}

TEST(PlanMemory, MemoriesWithoutBytesOrUsesTakeNoRoomFromOthers) {
  Schedule schedule = serial_schedule({{0}, {1}}, 3);
  schedule.tasks[1].touches[0].bytes.end = 0;
  plan_memory(schedule, requests_of({64, 0, 64}));
  EXPECT_TRUE(schedule.placements[1].in_arena);
  EXPECT_EQ(schedule.arena_bytes, 64u);
}

TEST(PlanMemory, OthersUseAPlaceOfAResultOnlyBeforeItIsWritten) {
  // Memory 0 is the result of task 1; 1 is used before it, 2 behind it.
  Schedule schedule = serial_schedule({{1}, {0}, {2}}, 3);
  std::vector<ArenaRequest> requests = requests_of({64, 64, 64});
  requests[0].is_result = true;
  const MemoryPlanStats stats = plan_memory(schedule, requests);
  EXPECT_EQ(stats.lower_bound_bytes, 128u);
  EXPECT_EQ(schedule.result_bytes, 64u);
  EXPECT_EQ(schedule.arena_bytes, 128u);
  EXPECT_TRUE(schedule.placements[0].is_result);
  EXPECT_EQ(schedule.placements[1].offset, 0u);
  EXPECT_EQ(schedule.placements[2].offset, 64u);
  EXPECT_EQ(verify_schedule(schedule), std::vector<std::string>());

  schedule.placements[2].offset = 0;
  EXPECT_EQ(verify_schedule(schedule).size(), 1u);
}

TEST(PlanMemory, NothingLiesAcrossTheEndOfTheResults) {
  Schedule schedule = serial_schedule({{1}, {0}}, 2);
  std::vector<ArenaRequest> requests = requests_of({64, 128});
  requests[0].is_result = true;
  plan_memory(schedule, requests);
  EXPECT_EQ(schedule.placements[1].offset, 64u);
  EXPECT_EQ(schedule.arena_bytes, 192u);
  EXPECT_EQ(verify_schedule(schedule), std::vector<std::string>());

  schedule.placements[1].offset = 0;
  EXPECT_EQ(verify_schedule(schedule).size(), 1u);
  schedule.placements[1].offset = 64;
  schedule.placements[0].offset = 128;
  EXPECT_EQ(verify_schedule(schedule).size(), 1u);
}

TEST(PlanMemory, RandomProgramsWithResultsOnTwoStreamsAreProven) {
  std::mt19937 rng(19);
  for (int round = 0; round < 100; ++round) {
    Graph graph = testing::random_graph(rng, 60);
    graph.first_joint_output = 0;
    StreamAssignment assignment;
    assignment.streams.resize(2);
    for (uint32_t op = 0; op < graph.ops.size(); ++op) assignment.streams[rng() % 2].push_back(op);
    const BuiltSchedule built = build_schedule(graph, assignment, {});
    EXPECT_EQ(verify_schedule(built.schedule), std::vector<std::string>());
    EXPECT_GE(built.schedule.arena_bytes, built.memory.lower_bound_bytes);
  }
}

TEST(PlanMemory, RefusesAScheduleThatNeverEnds) {
  Schedule schedule = serial_schedule({{0}}, 1);
  schedule.streams[0][0].waits = {{StreamId(0), 0}};
  EXPECT_THROW(plan_memory(schedule, requests_of({64})), InternalError);
}

TEST(PlanMemory, RandomProgramsStayCloseToTheLowerBoundOnOneStream) {
  std::mt19937 rng(18);
  size_t arena = 0;
  size_t lower_bound = 0;
  for (int round = 0; round < 200; ++round) {
    const Graph graph = testing::random_graph(rng, 150);
    const BuiltSchedule built = build_schedule(graph, single_stream(graph), {});
    ASSERT_GE(built.schedule.arena_bytes, built.memory.lower_bound_bytes);
    arena += built.schedule.arena_bytes;
    lower_bound += built.memory.lower_bound_bytes;
  }
  EXPECT_LT(static_cast<double>(arena), 1.1 * static_cast<double>(lower_bound));
}

TEST(PlanMemory, RandomProgramsSharePlacesOnManyStreams) {
  std::mt19937 rng(19);
  size_t shared = 0;
  for (int round = 0; round < 300; ++round) {
    const Graph graph = testing::random_graph(rng, 100);
    const Dag dag = dependency_dag(graph);
    const BuiltSchedule built = build_schedule(graph, testing::random_assignment(rng, dag, 4), {});
    ASSERT_EQ(verify_schedule(built.schedule), std::vector<std::string>());
    ASSERT_GE(built.schedule.arena_bytes, built.memory.lower_bound_bytes);
    size_t total = 0;
    for (const Placement& placement : built.schedule.placements)
      if (placement.in_arena) total += placement.bytes;
    shared += built.schedule.arena_bytes < total;
  }
  EXPECT_GT(shared, 200u);
}

}  // namespace
}  // namespace nimble
