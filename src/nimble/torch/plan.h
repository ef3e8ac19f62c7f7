#pragma once

#include <vector>

#include "nimble/graph/graph.h"
#include "nimble/runtime/worker_pool.h"
#include "nimble/schedule/build.h"
#include "nimble/torch/framework_task.h"
#include "nimble/torch/recording.h"

namespace nimble {

// What all instances of an engine share: the program, and how each call is made.
struct Plan {
  Recording recording;
  Graph graph;
  std::vector<CallBinding> bindings;  // by CallId, which is OpId
  std::vector<bool> adopted;  // by MemoryId: the framework allocates it at every replay, anywhere

  // `policies` by CallId, as best_policies() gives them or further down.
  Plan(Recording recorded, const std::vector<ResultPolicy>& policies);
};

std::vector<ResultPolicy> best_policies(const Recording& recording);

// A schedule and how many threads each of its ops may use.
struct PlannedSchedule {
  BuiltSchedule built;
  int intra_op_threads = 1;
};

// The process's helper threads, set up to run framework ops.
WorkerPool& framework_workers();

}  // namespace nimble
