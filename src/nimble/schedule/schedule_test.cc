#include "nimble/schedule/schedule.h"

#include <gtest/gtest.h>

#include "nimble/base/error.h"
#include "nimble/schedule/build.h"
#include "nimble/schedule/random_dag.h"

namespace nimble {
namespace {

TEST(SerialOrder, KeepsStreamsAndWaits) {
  std::mt19937 rng(60);
  for (int round = 0; round < 200; ++round) {
    const Graph graph = testing::random_graph(rng, 40);
    const Dag dag = dependency_dag(graph);
    const Schedule schedule =
        build_schedule(graph, testing::random_assignment(rng, dag, 4), {}).schedule;
    const std::vector<TaskId> order = serial_order(schedule);
    std::vector<size_t> position(order.size());
    for (size_t i = 0; i < order.size(); ++i) position[order[i].index] = i;
    for (const auto& stream : schedule.streams) {
      for (size_t k = 0; k < stream.size(); ++k) {
        const size_t here = position[stream[k].task.index];
        if (k > 0) {
          ASSERT_LT(position[stream[k - 1].task.index], here);
        }
        for (const Wait& wait : stream[k].waits)
          ASSERT_LT(position[schedule.streams[wait.stream.index][wait.step].task.index], here);
      }
    }
  }
}

TEST(SerialOrder, IsTheRecordedOneIfStreamsKeepIt) {
  Schedule schedule;
  schedule.tasks.resize(4);
  schedule.streams = {{{TaskId(1), {}}, {TaskId(3), {}}}, {{TaskId(0), {}}, {TaskId(2), {}}}};
  std::vector<TaskId> expected;
  for (size_t i = 0; i < 4; ++i) expected.emplace_back(i);
  EXPECT_EQ(serial_order(schedule), expected);
  std::swap(schedule.streams[0][0], schedule.streams[0][1]);
  expected = {TaskId(0), TaskId(2), TaskId(3), TaskId(1)};
  EXPECT_EQ(serial_order(schedule), expected);
}

TEST(SerialOrder, RefusesStreamsThatLockUp) {
  Schedule schedule;
  schedule.tasks.resize(1);
  schedule.streams = {{{TaskId(0), {{StreamId(0), 0}}}}};
  EXPECT_THROW(serial_order(schedule), InternalError);
}

}  // namespace
}  // namespace nimble
