#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "nimble/graph/graph.h"
#include "nimble/schedule/bounded.h"
#include "nimble/schedule/build.h"

namespace nimble {

struct ManyStreamsOptions {
  size_t workers = 1;
  // What a wait on another worker costs, with the results that it has to bring to this core. Of
  // 200, 1000, 3000 and 6000 on AmoebaNet, DARTS and NASNet-A mobile, 1000 was the fastest or next
  // to it.
  double wait_ns = 1000;
  size_t search_steps = 2000;
  // For the arena. Not kept if even one op at a time needs more.
  size_t memory_limit_bytes = std::numeric_limits<size_t>::max();
};

struct ManyStreams {
  BuiltSchedule built;
  double makespan_ns = 0;     // as expected
  double lower_bound_ns = 0;  // max(critical path, total / workers)
};

// Ops and parts of ops side by side on a fixed number of workers, as fast as
// `assign_bounded_streams` finds within the memory limit. Parts stay, where it makes no difference,
// on the worker that has the neighbouring parts of the ops before.
ManyStreams build_many_streams(const Graph& graph, const std::vector<double>& cost_ns,
                               const ManyStreamsOptions& options,
                               const std::vector<bool>& unplanned_memories = {});

}  // namespace nimble
