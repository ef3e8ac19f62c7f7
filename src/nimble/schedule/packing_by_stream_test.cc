#include "nimble/schedule/packing_by_stream.h"

#include <gtest/gtest.h>

#include "nimble/schedule/memory_plan.h"
#include "nimble/schedule/one_stream.h"
#include "nimble/schedule/test_network.h"
#include "nimble/schedule/verify.h"

namespace nimble {
namespace {

constexpr size_t kNoLimit = size_t{1} << 40;

// A chain of 1x1 convolutions, each in two halves: images of these sizes, in 64 KiB.
Schedule chain_of(const std::vector<int64_t>& sizes) {
  testing::NetworkWriter writer;
  testing::Image image = writer.image(16, 16, 64, Role::kInput);
  for (int64_t size : sizes) {
    const testing::Image next = writer.image(16, 16, 64 * size);
    writer.add("convolution", {{image}, next, 0, 2, 1000});
    image = next;
  }
  return build_one_stream(writer.finish(image), 2, writer.costs()).schedule;
}

bool is_aligned(const Schedule& schedule) {
  for (const Placement& placement : schedule.placements)
    if (placement.offset % kArenaAlignment != 0) return false;
  return schedule.arena_bytes % kArenaAlignment == 0;
}

// 111111       ->   11|11     each stream's half on its own side of where the streams meet
// 2222              222|222
TEST(PackingByStream, HalvesOfDifferentSizesStayWithTheirStreams) {
  Schedule schedule = chain_of({2, 6, 2, 6, 4, 6, 2, 4, 2});
  const size_t arena = schedule.arena_bytes;
  const size_t taken = bytes_taken_from_streams(schedule);
  EXPECT_GT(taken, 0u);
  keep_streams_apart(schedule, arena * 3 / 2);
  EXPECT_EQ(verify_schedule(schedule), std::vector<std::string>());
  EXPECT_LE(schedule.arena_bytes, arena * 3 / 2);
  EXPECT_LT(bytes_taken_from_streams(schedule), taken / 4);
}

TEST(PackingByStream, ImagesOfOneSizeNeedNoOtherPlaces) {
  Schedule schedule = chain_of({4, 4, 4, 4, 4});
  EXPECT_EQ(bytes_taken_from_streams(schedule), 0u);
  const size_t arena = schedule.arena_bytes;
  keep_streams_apart(schedule, kNoLimit);
  EXPECT_EQ(schedule.arena_bytes, arena);
}

TEST(PackingByStream, WhatAnotherStreamReadsIsTaken) {
  // Stream 0 writes [0, 64) and reads it again, or stream 1 does.
  for (uint32_t reader : {0, 1}) {
    Schedule schedule;
    schedule.tasks.resize(2);
    schedule.tasks[0].touches = {{MemoryId(0), {0, 64}, true}};
    schedule.tasks[1].touches = {{MemoryId(0), {0, 64}, false}};
    schedule.streams.resize(2);
    schedule.streams[0].push_back({TaskId(0), {}});
    schedule.streams[reader].push_back({TaskId(1), {{StreamId(0), 0}}});
    if (reader == 0) schedule.streams[0][1].waits.clear();
    schedule.placements = {{.in_arena = true, .bytes = 64}};
    schedule.arena_bytes = 64;
    EXPECT_EQ(bytes_taken_from_streams(schedule) > 0, reader == 1);
  }
}

TEST(PackingByStream, OneStreamHasNobodyToTakeFrom) {
  Schedule schedule = chain_of({2, 6, 2, 6});
  std::vector<Step> all;
  for (uint32_t task = 0; task < schedule.tasks.size(); ++task) all.push_back({TaskId(task), {}});
  schedule.streams = {all};
  const Schedule before = schedule;
  keep_streams_apart(schedule, kNoLimit);
  EXPECT_EQ(bytes_taken_from_streams(schedule), 0u);
  for (size_t i = 0; i < before.placements.size(); ++i)
    EXPECT_EQ(schedule.placements[i].offset, before.placements[i].offset);
}

TEST(PackingByStream, RandomProgramsStayProvenAlignedAndWithinTheLimit) {
  std::mt19937 rng(23);
  size_t less = 0;
  for (int round = 0; round < 300; ++round) {
    Graph graph = testing::random_graph(rng, 80);
    if (round % 3 == 0) graph.first_joint_output = 0;  // with results in front
    const Dag dag = dependency_dag(graph);
    const size_t streams = testing::random_between(rng, 2, 4);
    Schedule schedule =
        build_schedule(graph, testing::random_assignment(rng, dag, streams), {}).schedule;
    ASSERT_EQ(verify_schedule(schedule), std::vector<std::string>());
    const size_t taken = bytes_taken_from_streams(schedule);
    const size_t limit = schedule.arena_bytes * testing::random_between(rng, 2, 8) / 4;
    const size_t most = std::max(limit, schedule.arena_bytes);
    keep_streams_apart(schedule, limit);
    ASSERT_EQ(verify_schedule(schedule), std::vector<std::string>());
    ASSERT_TRUE(is_aligned(schedule));
    ASSERT_LE(schedule.arena_bytes, most);
    ASSERT_LE(bytes_taken_from_streams(schedule), taken);
    less += bytes_taken_from_streams(schedule) < taken;
  }
  EXPECT_GT(less, 50u);
}

TEST(PackingByStream, NetworksInPartsTakeLess) {
  std::mt19937 rng(24);
  size_t before = 0;
  size_t after = 0;
  for (int round = 0; round < 10; ++round) {
    const auto network = testing::random_network(rng, 6, 10000);
    Schedule schedule = build_one_stream(network.graph, 2, network.costs).schedule;
    before += bytes_taken_from_streams(schedule);
    keep_streams_apart(schedule, schedule.arena_bytes * 3 / 2);
    ASSERT_EQ(verify_schedule(schedule), std::vector<std::string>());
    after += bytes_taken_from_streams(schedule);
  }
  EXPECT_LT(after, before);
}

}  // namespace
}  // namespace nimble
