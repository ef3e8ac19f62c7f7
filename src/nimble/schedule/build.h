#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "nimble/graph/graph.h"
#include "nimble/schedule/bounded_plan.h"
#include "nimble/schedule/dag.h"
#include "nimble/schedule/memory_plan.h"
#include "nimble/schedule/schedule.h"
#include "nimble/schedule/stream_assignment.h"

namespace nimble {

// The graph's ops and edges, and others that a schedule wants, as a plain DAG.
Dag dependency_dag(const Graph& graph, const std::vector<Edge>& extra_edges = {});

struct BuildOptions {
  std::vector<Edge> extra_edges = {};  // kept as the graph's own are
  // If a plan of the memory needs more than this, and it is known when tasks are expected to run,
  // memories are shared by that, and waits are added to make sure.
  size_t memory_limit_bytes = std::numeric_limits<size_t>::max();
  ExpectedTimes expected = {};
};

// Turns an assignment into a schedule: one task per op, the fewest waits (edges of the minimum
// equivalent graph that cross streams, less those that earlier waits imply, by vector clocks), and
// a memory plan for every intermediate that is neither an output nor listed in `unplanned`.
struct BuiltSchedule {
  Schedule schedule;
  MemoryPlanStats memory;
};
BuiltSchedule build_schedule(const Graph& graph, const StreamAssignment& assignment,
                             const std::vector<double>& cost_ns,
                             const std::vector<bool>& unplanned_memories = {},
                             const BuildOptions& options = {});

// What of a schedule's memory has to be planned, by op.
MemoryUses planned_memory_uses(const Graph& graph,
                               const std::vector<bool>& unplanned_memories = {});

// All ops on one stream, in recorded order.
StreamAssignment single_stream(const Graph& graph);

}  // namespace nimble
