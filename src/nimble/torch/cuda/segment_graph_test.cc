// What a capture would be without its waits, joins and drop rule is caught by the proof of its
// graph. Runs on the fake CUDA runtime of the tests.
#include "nimble/torch/cuda/segment_graph.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "nimble/base/error.h"
#include "nimble/schedule/stream_assignment.h"
#include "nimble/torch/cuda/graph_pool.h"
#include "nimble/torch/recording.h"
#include "nimble/torch/replay_guard.h"

namespace nimble {
namespace {

// Branches that hand intermediates of one size to one another, so that blocks are used again and
// read on other streams.
std::vector<at::Tensor> branches(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> chains(4, inputs[0]);
  for (int depth = 0; depth < 5; ++depth) {
    std::vector<at::Tensor> next;
    for (size_t i = 0; i < chains.size(); ++i)
      next.push_back((chains[i].relu() + chains[(i + 1) % chains.size()].sigmoid()).tanh());
    chains = next;
  }
  return {chains[0] * chains[1], chains[2] - chains[3]};
}

class Capture {
 public:
  Capture()
      : inputs_{at::ones({64, 64}, at::TensorOptions().device(at::kCUDA))},
        plan_(std::make_shared<Recording>(record_calls(branches, inputs_)),
              std::vector<ResultPolicy>(kOps, ResultPolicy::kAdoption)),
        segment_{true, 0, kOps},
        schedule_(build_schedule(plan_.graph, assign_unbounded_streams(dependency_dag(plan_.graph)),
                                 {}, std::vector<bool>(plan_.graph.memories.size(), true))
                      .schedule) {
    for (const Memory& memory : plan_.graph.memories)
      may_drop.push_back(memory.role == Role::kIntermediate && !memory.is_output);
    order = plan_capture(schedule_, may_drop);
  }

  // Why the plan cannot be captured; empty if it can.
  std::string fault() const {
    const FrameworkDispatch dispatch;
    ProgramMemory memory(plan_, {segment_});
    const SegmentProgram program{plan_, segment_, order, 0};
    GraphPool pool(0);
    try {
      const SegmentGraph graph(program, memory, {}, pool.id());
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

  // As if one stream ran it all: a memory is dropped when no op that is issued later needs it.
  void drop_when_issued() {
    std::vector<size_t> last(may_drop.size());
    for (size_t i = 0; i < order.steps.size(); ++i) {
      order.steps[i].drops.clear();
      for (const Touch& touch : schedule_.tasks[order.steps[i].task.index].touches)
        last[touch.memory.index] = i;
    }
    for (size_t m = 0; m < last.size(); ++m)
      if (may_drop[m] && last[m] + 1 < order.steps.size())
        order.steps[last[m] + 1].drops.emplace_back(m);
  }

  // By the checker of plans, which knows nothing of CUDA.
  bool is_faulty() const { return !verify_capture(schedule_, may_drop, order).empty(); }

  CapturePlan order;
  std::vector<bool> may_drop;

 private:
  static constexpr uint32_t kOps = 4 * 5 * 4 + 2;

  std::vector<at::Tensor> inputs_;
  Plan plan_;
  Segment segment_;
  Schedule schedule_;
};

bool is_unordered(const std::string& fault) {
  return fault.find("are not ordered") != std::string::npos;
}

TEST(SegmentGraph, IsProvenAsPlanned) {
  const Capture capture;
  EXPECT_EQ(capture.fault(), "");
  size_t drops = 0;
  for (const CaptureStep& step : capture.order.steps) drops += step.drops.size();
  EXPECT_GT(drops, 10u);
}

TEST(SegmentGraph, NaiveFreesAreCaught) {
  Capture capture;
  capture.drop_when_issued();
  EXPECT_TRUE(is_unordered(capture.fault()));
}

TEST(SegmentGraph, EveryWaitThatIsMissedIsCaught) {
  const Capture whole;
  size_t unordered = 0;
  for (size_t i = 0; i < whole.order.steps.size(); ++i)
    for (size_t w = 0; w < whole.order.steps[i].waits.size(); ++w) {
      Capture capture;
      auto& waits = capture.order.steps[i].waits;
      waits.erase(waits.begin() + static_cast<ptrdiff_t>(w));
      if (waits.empty()) capture.order.steps[i].forks = true;  // it may be its stream's first
      if (!capture.is_faulty()) continue;
      ++unordered;
      EXPECT_NE(capture.fault(), "") << "step " << i << ", wait " << w;
    }
  EXPECT_GT(unordered, 10u);
}

TEST(SegmentGraph, AMissingJoinIsCaught) {
  Capture capture;
  ASSERT_FALSE(capture.order.joins.empty());
  capture.order.joins.pop_back();
  EXPECT_NE(capture.fault(), "");
}

TEST(SegmentGraph, WhatFailedCanBeCapturedAgain) {
  Capture capture;
  const CapturePlan right = capture.order;
  capture.order.joins.clear();
  EXPECT_NE(capture.fault(), "");
  capture.order = right;
  EXPECT_EQ(capture.fault(), "");
}

}  // namespace
}  // namespace nimble
