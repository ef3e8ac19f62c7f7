#pragma once

#include <cstddef>
#include <vector>

#include "nimble/schedule/dag.h"
#include "nimble/schedule/stream_assignment.h"

namespace nimble {

struct BoundedOptions {
  size_t workers = 1;
  double wait_ns = 200;        // what a wait on another worker costs
  size_t search_steps = 2000;  // of local search; deterministic
};

struct BoundedSchedule {
  StreamAssignment assignment;  // at most `workers` streams
  double makespan_ns = 0;       // as simulated
  double lower_bound_ns = 0;    // max(critical path, total / workers)
};

// Maps nodes to a fixed number of workers from measured costs:
//
//   1. List scheduling, longest path to the end first, on the worker where it ends earliest, in a
//      gap if it fits.
//   2. Local search: move or swap nodes on the critical path while the simulated time falls, and
//      others for fewer edges between workers while it does not rise.
//
// Never worse than all nodes on one worker, as simulated.
BoundedSchedule assign_bounded_streams(const Dag& dag, const std::vector<double>& cost_ns,
                                       const BoundedOptions& options);

// The time at which the last worker finishes, with `wait_ns` on every edge between workers.
double simulate_makespan(const Dag& dag, const std::vector<double>& cost_ns,
                         const StreamAssignment& assignment, double wait_ns);

}  // namespace nimble
