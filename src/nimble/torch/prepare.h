#pragma once

#include <memory>
#include <vector>

#include "nimble/passes/pipeline.h"
#include "nimble/torch/device_replay.h"
#include "nimble/torch/instance.h"
#include "nimble/torch/nimble.h"
#include "nimble/torch/plan.h"
#include "nimble/torch/weights.h"

namespace nimble {

// A plan for a device that was considered beside the present one.
struct ConsideredPlan {
  std::string name;
  double us = 0;          // of a call, on the device
  double present_us = 0;  // of the present one at that time
  bool kept = false;
  std::string why_dropped;  // where it was not measured
};

// What was measured and planned while preparing.
struct PrepareReport {
  double record_ms = 0;
  double plan_ms = 0;
  double measure_ms = 0;
  double select_ms = 0;        // choosing kernels; part of plan_ms
  double one_stream_us = 0;    // a replay on one stream, with all threads inside the ops
  double many_streams_us = 0;  // on several, if that was tried
  double makespan_us = 0;      // of the bounded schedule, as simulated
  double makespan_lower_bound_us = 0;
  bool many_streams = false;               // they were kept
  std::vector<PassRecord> passes;          // over the graph, where our kernels are used
  size_t distinct_ops = 0;                 // that kernels were chosen for
  std::string why_framework_kernels;       // why none of ours are used; empty if they are
  std::vector<ConsideredPlan> considered;  // on a device
};

struct Prepared {
  std::unique_ptr<Plan> plan;
  std::unique_ptr<Weights> weights;  // of the plan, if it has ops of ours
  Graph recorded_graph;              // before any rewriting
  PlannedSchedule schedule;
  std::unique_ptr<Instance> instance;    // of that schedule, warm; on the CPU
  std::unique_ptr<DeviceReplay> device;  // or where the program runs otherwise
  PrepareReport report;
};

// Everything that happens ahead of time, in order:
//
//   1. record the program;
//   2. build the graph; bind each call to an out variant or to adoption of its result;
//   3. replay once on one stream and compare with the recorded run: refused if it differs;
//      If it has live numbers, record it again with others: nothing else may differ;
//   4. run the program once more on other values, and compare with a replay on those;
//   5. rewrite the program for our own kernels, choose them by measuring, and compare again;
//   6. measure the tasks, make the bounded schedule, prove it, and keep it only if it measures
//      faster than one stream (unless the user asked for a number of streams).
//
// What runs on CUDA is captured instead, and checked in the same way. Other plans of the same
// program (rewritten, in another order) are kept if they give the same and measure faster.
//
// Leaves parameters, running statistics and random generators as they were.
Prepared prepare(const TensorFunction& function, const std::vector<at::Tensor>& inputs,
                 const Options& options, const NamedTensors& names, const LiveFunction& live);

}  // namespace nimble
