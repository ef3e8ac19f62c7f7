#pragma once

#include <cstddef>
#include <vector>

#include "nimble/graph/graph.h"
#include "nimble/schedule/build.h"
#include "nimble/schedule/stream_assignment.h"

namespace nimble {

// One stream on several workers: ops one after another in the graph's order, the parts of each on
// all workers at once. An op that is not split runs on worker 0.
//
// Workers get neighbouring parts where that is nearly as fast as the best division: the next op's
// rows are then in the cache of the core that reads them. No costs: all parts take the same time.
StreamAssignment one_op_at_a_time(const Graph& graph, size_t workers,
                                  const std::vector<double>& cost_ns);

// What makes it one op at a time: edges that let a worker start an op when all workers have ended
// the one before. For `build_schedule`.
std::vector<Edge> barriers_between_ops(const Graph& graph, const StreamAssignment& assignment);

// Both.
BuiltSchedule build_one_stream(const Graph& graph, size_t workers,
                               const std::vector<double>& cost_ns,
                               const std::vector<bool>& unplanned_memories = {});

}  // namespace nimble
