#pragma once

#include <memory>
#include <vector>

#include "nimble/graph/graph.h"
#include "nimble/kernels/selection.h"
#include "nimble/runtime/worker_pool.h"
#include "nimble/schedule/build.h"
#include "nimble/torch/framework_task.h"
#include "nimble/torch/recording.h"

namespace nimble {

// What all instances of an engine share: the program, and how each of its ops is run.
struct Plan {
  std::shared_ptr<Recording> recorded;
  Recording& recording;  // the same
  Graph graph;
  std::vector<CallBinding> bindings;  // by CallId
  std::vector<bool> adopted;  // by MemoryId: the framework allocates it at every replay, anywhere
  std::vector<KernelChoice> kernels;  // by KernelId

  // The recorded program on the framework's ops. `policies` by CallId, as best_policies() gives
  // them or further down.
  Plan(std::shared_ptr<Recording> recorded, const std::vector<ResultPolicy>& policies);
  // The same program rewritten; framework calls that are left are bound as in `framework`.
  Plan(const Plan& framework, Graph rewritten, std::vector<KernelChoice> chosen);
  // Another program of framework calls, on a recording of its own.
  Plan(std::shared_ptr<Recording> recorded, Graph rewritten);
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

 private:
  void find_adopted();
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
