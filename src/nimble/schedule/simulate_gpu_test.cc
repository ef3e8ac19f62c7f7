#include "nimble/schedule/simulate_gpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "nimble/base/error.h"
#include "nimble/schedule/build.h"
#include "nimble/schedule/described_gpus.h"
#include "nimble/schedule/random_dag.h"

namespace nimble {
namespace {

using testing::random_assignment;
using testing::random_between;
using testing::random_graph;

// 4 SMs, one block each, one flop and one byte a ns each; nothing else costs anything.
Gpu small_gpu() {
  Gpu gpu;
  gpu.sms = 4;
  gpu.flops_per_ns = 4;
  gpu.bytes_per_ns = 4;
  gpu.sm_bytes_per_ns = 1;
  return gpu;
}

GpuTask compute(double flops, uint32_t blocks) {
  return {.flops = flops, .blocks = blocks};
}
GpuTask load(double bytes, uint32_t blocks) {
  return {.bytes = bytes, .blocks = blocks};
}

using Streams = std::vector<std::vector<Step>>;
Step step(uint32_t task, std::vector<Wait> waits = {}) {
  return {TaskId(task), std::move(waits)};
}

TEST(SimulateGpu, AKernelThatFillsTheGpuHasAllOfIt) {
  const GpuRun run = simulate_replay(small_gpu(), {compute(40, 4)}, {{step(0)}});
  EXPECT_DOUBLE_EQ(run.total_ns, 10);
  EXPECT_DOUBLE_EQ(run.idle_share, 0);
  EXPECT_DOUBLE_EQ(run.sm_share, 1);
}

TEST(SimulateGpu, AKernelOfOneBlockHasOneSm) {
  const GpuRun run = simulate_replay(small_gpu(), {compute(40, 1)}, {{step(0)}});
  EXPECT_DOUBLE_EQ(run.total_ns, 40);
  EXPECT_DOUBLE_EQ(run.sm_share, 0.25);
}

TEST(SimulateGpu, BlocksComeInWaves) {
  // 5 blocks of 10 on 4 SMs: 4, then 1.
  const GpuRun run = simulate_replay(small_gpu(), {compute(50, 5)}, {{step(0)}});
  EXPECT_DOUBLE_EQ(run.total_ns, 20);
  EXPECT_DOUBLE_EQ(run.sm_share, 5.0 / 8);
}

TEST(SimulateGpu, SmallKernelsOfTwoStreamsRunSideBySide) {
  const std::vector<GpuTask> tasks = {compute(20, 2), compute(20, 2)};
  EXPECT_DOUBLE_EQ(simulate_replay(small_gpu(), tasks, {{step(0), step(1)}}).total_ns, 20);
  EXPECT_DOUBLE_EQ(simulate_replay(small_gpu(), tasks, {{step(0)}, {step(1)}}).total_ns, 10);
}

TEST(SimulateGpu, LargeKernelsOfTwoStreamsRunOneAfterTheOther) {
  const std::vector<GpuTask> tasks = {compute(40, 4), compute(40, 4)};
  const GpuRun run = simulate_replay(small_gpu(), tasks, {{step(0)}, {step(1)}});
  EXPECT_DOUBLE_EQ(run.total_ns, 20);
  EXPECT_DOUBLE_EQ(run.kernels[0].end_ns, 10);
}

TEST(SimulateGpu, WaitingBlocksOfAnUrgentStreamAreNext) {
  // Each fills the GPU; 1 and 2 wait while 0 works.
  const std::vector<GpuTask> tasks = {compute(40, 4), compute(40, 4), compute(40, 4)};
  const Streams streams = {{step(0)}, {step(1)}, {step(2)}};
  EXPECT_DOUBLE_EQ(simulate_replay(small_gpu(), tasks, streams).kernels[2].end_ns, 30);
  const GpuRun run = simulate_replay(small_gpu(), tasks, streams, {0, 2, 1});
  EXPECT_DOUBLE_EQ(run.kernels[2].end_ns, 20);
  EXPECT_DOUBLE_EQ(run.kernels[1].end_ns, 30);
}

TEST(SimulateGpu, ALastWaveLeavesRoomForTheNextKernel) {
  // 0 takes 4 and then 2 SMs; 1 has its two blocks beside the latter.
  const std::vector<GpuTask> tasks = {compute(60, 6), compute(20, 2)};
  EXPECT_DOUBLE_EQ(simulate_replay(small_gpu(), tasks, {{step(0)}, {step(1)}}).total_ns, 20);
}

TEST(SimulateGpu, KernelsShareTheBandwidth) {
  Gpu gpu = small_gpu();
  gpu.sm_bytes_per_ns = 4;  // one block could draw all of it
  EXPECT_DOUBLE_EQ(simulate_replay(gpu, {load(40, 1)}, {{step(0)}}).total_ns, 10);
  const GpuRun two = simulate_replay(gpu, {load(40, 1), load(20, 1)}, {{step(0)}, {step(1)}});
  EXPECT_DOUBLE_EQ(two.kernels[1].end_ns, 10);  // half of it each
  EXPECT_DOUBLE_EQ(two.kernels[0].end_ns, 15);  // then all for the first
}

TEST(SimulateGpu, WhatABlockCannotDrawIsLeftToOthers) {
  Gpu gpu = small_gpu();
  gpu.sm_bytes_per_ns = 4;
  // 0 needs 1 byte for each of its flops, which is 1 a ns; 3 are left for 1.
  const GpuTask both{.flops = 10, .bytes = 10, .blocks = 1};
  const GpuRun run = simulate_replay(gpu, {both, load(30, 1)}, {{step(0)}, {step(1)}});
  EXPECT_DOUBLE_EQ(run.kernels[0].end_ns, 10);
  EXPECT_DOUBLE_EQ(run.kernels[1].end_ns, 10);
}

TEST(SimulateGpu, AReplayPaysForItsLaunchOnceAndForEveryStepAndWait) {
  Gpu gpu = small_gpu();
  gpu.graph_launch_ns = 100;
  gpu.kernel_latency_ns = 5;
  gpu.step_ns = 2;
  gpu.wait_ns = 3;
  const std::vector<GpuTask> tasks = {compute(40, 4), compute(40, 4)};
  // 100, 5 + 10, 2, 5 + 10.
  const GpuRun one = simulate_replay(gpu, tasks, {{step(0), step(1)}});
  EXPECT_DOUBLE_EQ(one.total_ns, 132);
  EXPECT_DOUBLE_EQ(one.idle_share, 102.0 / 132);
  const GpuRun two = simulate_replay(gpu, tasks, {{step(0)}, {step(1, {{StreamId(0), 0}})}});
  EXPECT_DOUBLE_EQ(two.total_ns, 135);
  EXPECT_DOUBLE_EQ(two.kernels[1].begin_ns, 120);
}

TEST(SimulateGpu, EagerWaitsForTheHostOrTheGpu) {
  Gpu gpu = small_gpu();
  gpu.eager_op_ns = 25;
  // Issued at 25, 50, 75; the second is still at work when the third is issued.
  const GpuRun run = simulate_eager(gpu, {compute(40, 4), compute(160, 4), compute(40, 4)});
  EXPECT_DOUBLE_EQ(run.kernels[0].begin_ns, 25);
  EXPECT_DOUBLE_EQ(run.kernels[1].begin_ns, 50);
  EXPECT_DOUBLE_EQ(run.kernels[2].begin_ns, 90);
  EXPECT_DOUBLE_EQ(run.total_ns, 100);
  EXPECT_DOUBLE_EQ(run.idle_share, 0.4);
}

TEST(SimulateGpu, NothingTakesNoTime) {
  EXPECT_EQ(simulate_eager(small_gpu(), {}).total_ns, 0);
  EXPECT_EQ(simulate_replay(small_gpu(), {}, {}).total_ns, 0);
  EXPECT_EQ(simulate_replay(small_gpu(), {GpuTask{}}, {{step(0)}}).total_ns, 0);
}

TEST(SimulateGpu, StreamsThatLockUpAreNoticed) {
  const Streams streams = {{step(0, {{StreamId(1), 0}})}, {step(1, {{StreamId(0), 0}})}};
  EXPECT_THROW(simulate_replay(small_gpu(), {compute(1, 1), compute(1, 1)}, streams),
               InternalError);
}

TEST(SimulateGpu, BlocksOfOneSmShareIt) {
  Gpu gpu = small_gpu();
  gpu.blocks_per_sm = 2;
  // 4 blocks have an SM each, 8 half of one.
  EXPECT_DOUBLE_EQ(simulate_replay(gpu, {compute(40, 4)}, {{step(0)}}).total_ns, 10);
  const GpuRun run = simulate_replay(gpu, {compute(80, 8)}, {{step(0)}});
  EXPECT_DOUBLE_EQ(run.total_ns, 20);
  EXPECT_DOUBLE_EQ(run.sm_share, 1);
}

TEST(DescribedGpus, NumbersMayBeGiven) {
  EXPECT_EQ(described_gpu("v100").sms, 80);
  const Gpu gpu = described_gpu("v100,eager_op_ns=20000,step_ns=1e3");
  EXPECT_EQ(gpu.eager_op_ns, 20000);
  EXPECT_EQ(gpu.step_ns, 1000);
  EXPECT_EQ(gpu.wait_ns, described_gpu("v100").wait_ns);
}

TEST(DescribedGpus, WhatIsNotDescribedIsTheUsersMistake) {
  for (const char* description : {"", "abacus", "v100,beads=7", "v100,step_ns", "v100,step_ns=",
                                  "v100,step_ns=0", "v100,step_ns=1x", "v100,step_ns=inf"})
    EXPECT_THROW(described_gpu(description), UserError) << description;
}

// Random programs.

class RandomProgram : public ::testing::TestWithParam<unsigned> {
 protected:
  RandomProgram() : rng_(GetParam()), graph_(random_graph(rng_, 60)), dag_(dependency_dag(graph_)) {
    for (size_t i = 0; i < graph_.ops.size(); ++i)
      tasks_.push_back({.flops = static_cast<double>(rng_() % 1000),
                        .bytes = static_cast<double>(rng_() % 1000),
                        .blocks = static_cast<uint32_t>(random_between(rng_, 1, 12))});
  }

  Streams streams_of(const StreamAssignment& assignment) const {
    return build_schedule(graph_, assignment, {}).schedule.streams;
  }

  double alone_ns(const Gpu& gpu, const GpuTask& task) const {
    return simulate_replay(gpu, {task}, {{step(0)}}).total_ns;
  }

  double critical_path_ns(const Gpu& gpu) const {
    std::vector<double> begin(dag_.size());
    double longest = 0;
    for (uint32_t node = 0; node < dag_.size(); ++node) {
      const double end = begin[node] + alone_ns(gpu, tasks_[node]);
      longest = std::max(longest, end);
      for (uint32_t to : dag_.successors[node]) begin[to] = std::max(begin[to], end);
    }
    return longest;
  }

  static Gpu endless_gpu() {
    Gpu gpu = small_gpu();
    gpu.sms = 100000;
    gpu.flops_per_ns = 100000;
    gpu.bytes_per_ns = 100000;
    return gpu;
  }

  std::mt19937 rng_;
  Graph graph_;
  Dag dag_;
  std::vector<GpuTask> tasks_;
};

constexpr double kRounding = 1 + 1e-9;

TEST_P(RandomProgram, IsNeverFasterThanItsWorkAllows) {
  Gpu gpu = small_gpu();
  gpu.sm_bytes_per_ns = 2;
  double flops = 0;
  double bytes = 0;
  for (const GpuTask& task : tasks_) {
    flops += task.flops;
    bytes += task.bytes;
  }
  const GpuRun run = simulate_replay(gpu, tasks_, streams_of(random_assignment(rng_, dag_, 5)));
  EXPECT_GE(run.total_ns * kRounding, flops / gpu.flops_per_ns);
  EXPECT_GE(run.total_ns * kRounding, bytes / gpu.bytes_per_ns);
  EXPECT_GE(run.sm_share * kRounding, flops / gpu.flops_per_ns / run.total_ns);
  EXPECT_LE(run.sm_share, kRounding);
}

TEST_P(RandomProgram, KeepsEveryEdge) {
  Gpu gpu = small_gpu();
  gpu.step_ns = 3;
  gpu.wait_ns = 2;
  gpu.kernel_latency_ns = 4;
  const GpuRun run = simulate_replay(gpu, tasks_, streams_of(random_assignment(rng_, dag_, 5)));
  for (uint32_t node = 0; node < dag_.size(); ++node) {
    EXPECT_LE(run.kernels[node].end_ns, run.total_ns);
    for (uint32_t to : dag_.successors[node])
      EXPECT_GE(run.kernels[to].begin_ns, run.kernels[node].end_ns + gpu.step_ns);
  }
}

TEST_P(RandomProgram, OnAnEndlessGpuTakesItsCriticalPathAndFewerStreamsAreNotFaster) {
  const Gpu gpu = endless_gpu();
  const double many =
      simulate_replay(gpu, tasks_, streams_of(assign_unbounded_streams(dag_))).total_ns;
  const double some =
      simulate_replay(gpu, tasks_, streams_of(random_assignment(rng_, dag_, 4))).total_ns;
  const double one = simulate_replay(gpu, tasks_, streams_of(single_stream(graph_))).total_ns;
  const double path = critical_path_ns(gpu);
  EXPECT_NEAR(many, path, 1e-6 * path);
  EXPECT_LE(path, some * kRounding);
  EXPECT_LE(some, one * kRounding);
}

TEST_P(RandomProgram, OneStreamTakesTheSumOfItsKernels) {
  const Gpu gpu = small_gpu();
  double sum = 0;
  for (const GpuTask& task : tasks_) sum += alone_ns(gpu, task);
  const double one = simulate_replay(gpu, tasks_, streams_of(single_stream(graph_))).total_ns;
  EXPECT_NEAR(one, sum, 1e-6 * sum);
  EXPECT_GE(one * kRounding, critical_path_ns(gpu));
}

TEST_P(RandomProgram, EagerIsNeverFasterThanTheHostNorThanOneStream) {
  Gpu gpu = small_gpu();
  gpu.step_ns = 1;
  gpu.eager_op_ns = static_cast<double>(random_between(rng_, 0, 500));
  const GpuRun eager = simulate_eager(gpu, tasks_);
  const GpuRun one = simulate_replay(gpu, tasks_, streams_of(single_stream(graph_)));
  EXPECT_GE(eager.total_ns * kRounding, gpu.eager_op_ns * static_cast<double>(tasks_.size()));
  EXPECT_GE(eager.total_ns * kRounding, one.total_ns);
  EXPECT_GE(eager.idle_share, 0);
  EXPECT_LE(eager.idle_share, 1);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomProgram, ::testing::Range(0U, 40U));

}  // namespace
}  // namespace nimble
