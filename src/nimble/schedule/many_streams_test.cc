#include "nimble/schedule/many_streams.h"

#include <gtest/gtest.h>

#include "nimble/schedule/one_stream.h"
#include "nimble/schedule/test_network.h"
#include "nimble/schedule/verify.h"

namespace nimble {
namespace {

TEST(ManyStreams, NetworksInPartsKeepTwoWorkersBusy) {
  std::mt19937 rng(40);
  for (int round = 0; round < 5; ++round) {
    const auto network = testing::random_network(rng, 6, 10000);
    const ManyStreams many = build_many_streams(network.graph, network.costs, {.workers = 2});
    ASSERT_EQ(verify_schedule(many.built.schedule), std::vector<std::string>());
    EXPECT_EQ(many.built.schedule.streams.size(), 2u);
    EXPECT_LT(many.makespan_ns, 1.03 * many.lower_bound_ns);
  }
}

TEST(ManyStreams, NeedNoMoreMemoryThanOneStreamIfToldSo) {
  std::mt19937 rng(41);
  size_t less = 0;
  for (int round = 0; round < 10; ++round) {
    const auto network = testing::random_network(rng, 6, 10000);
    const size_t one =
        build_schedule(network.graph, single_stream(network.graph), {}).schedule.arena_bytes;
    const ManyStreamsOptions free{.workers = 3, .search_steps = 200};
    ManyStreamsOptions limited = free;
    limited.memory_limit_bytes = one;
    const ManyStreams fast = build_many_streams(network.graph, network.costs, free);
    const ManyStreams small = build_many_streams(network.graph, network.costs, limited);
    ASSERT_EQ(verify_schedule(small.built.schedule), std::vector<std::string>());
    ASSERT_LE(small.built.schedule.arena_bytes, one);
    EXPECT_LT(small.makespan_ns, 1.1 * fast.makespan_ns);
    less += small.built.schedule.arena_bytes < fast.built.schedule.arena_bytes;
  }
  EXPECT_GT(less, 5u);
}

// Every kind of hazard, tasks that take no time, limits that can be kept or not.
TEST(ManyStreams, RandomProgramsVerifyWithinAnyLimit) {
  std::mt19937 rng(42);
  size_t kept = 0;
  size_t more_waits = 0;
  for (int round = 0; round < 600; ++round) {
    const Graph graph = testing::random_graph(rng, 60);
    const std::vector<double> costs = testing::random_costs(rng, graph.ops.size());
    ManyStreamsOptions options{.workers = testing::random_between(rng, 1, 4),
                               .wait_ns = static_cast<double>(rng() % 3 * 100),
                               .search_steps = 50};
    const ManyStreams free = build_many_streams(graph, costs, options);
    ASSERT_EQ(verify_schedule(free.built.schedule), std::vector<std::string>());
    const size_t one = build_schedule(graph, single_stream(graph), {}).schedule.arena_bytes;
    options.memory_limit_bytes = one * testing::random_between(rng, 3, 6) / 4;
    const ManyStreams limited = build_many_streams(graph, costs, options);
    ASSERT_EQ(verify_schedule(limited.built.schedule), std::vector<std::string>());
    ASSERT_GE(limited.makespan_ns, limited.lower_bound_ns * (1 - 1e-12));
    kept += limited.built.schedule.arena_bytes <= options.memory_limit_bytes;
    more_waits += limited.built.schedule.wait_count() > free.built.schedule.wait_count();
  }
  EXPECT_GT(kept, 300u);
  EXPECT_GT(more_waits, 30u);
}

TEST(ManyStreams, AChainOfPartsStaysOnItsWorker) {
  // Ten ops that look at no neighbouring rows.
  testing::NetworkWriter writer;
  testing::Image image = writer.image(8, 8, 4, Role::kInput);
  for (int op = 0; op < 10; ++op) {
    const testing::Image next = writer.image(8, 8, 4);
    writer.add("pointwise", {{image}, next, 0, 4, 40000});
    image = next;
  }
  const std::vector<double> costs = writer.costs();
  const Graph graph = writer.finish(image);
  const ManyStreams many = build_many_streams(graph, costs, {.workers = 2});
  EXPECT_EQ(many.built.schedule.wait_count(), 0u);
  EXPECT_DOUBLE_EQ(many.makespan_ns, many.lower_bound_ns);
}

TEST(ManyStreams, NothingToDo) {
  const ManyStreams many = build_many_streams(Graph(), {}, {.workers = 2});
  EXPECT_TRUE(many.built.schedule.tasks.empty());
}

}  // namespace
}  // namespace nimble
