#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "nimble/schedule/bounded_plan.h"
#include "nimble/schedule/dag.h"
#include "nimble/schedule/stream_assignment.h"

namespace nimble {

struct BoundedOptions {
  size_t workers = 1;
  double wait_ns = 200;        // what a wait on another worker costs
  size_t search_steps = 2000;  // of local search; deterministic
  // By node: the worker that runs it if it makes no difference otherwise; may be empty.
  std::vector<uint32_t> homes = {};
  // The most bytes in use at once. Kept if one worker alone could keep it.
  size_t memory_limit_bytes = std::numeric_limits<size_t>::max();
  MemoryUses uses = {};  // needed for a limit
};

struct BoundedSchedule {
  StreamAssignment assignment;  // at most `workers` streams
  ExpectedTimes expected;
  double makespan_ns = 0;     // as expected
  double lower_bound_ns = 0;  // max(critical path, total / workers)
};

// Maps nodes to a fixed number of workers from measured costs:
//
//   1. List scheduling: a free worker takes the node with the longest path to the end, of those not
//      too far ahead of the recorded order. Several distances are tried; of those that take about
//      the same time, the shortest is kept, as it keeps the fewest memories in use.
//   2. Local search: move or swap nodes on the critical path while the simulated time falls, and
//      others for fewer edges between workers while it does not rise.
//   3. If that needs more memory than allowed: list scheduling again, where a node starts only when
//      its memory is free. `expected` says when; what makes workers wait for it is not part of the
//      assignment.
//
// Never slower than all nodes on one worker, as simulated.
BoundedSchedule assign_bounded_streams(const Dag& dag, const std::vector<double>& cost_ns,
                                       const BoundedOptions& options);

// The time at which the last worker finishes, with `wait_ns` on every edge between workers.
double simulate_makespan(const Dag& dag, const std::vector<double>& cost_ns,
                         const StreamAssignment& assignment, double wait_ns);

}  // namespace nimble
