#pragma once

#include <cstddef>
#include <vector>

#include "nimble/graph/graph.h"
#include "nimble/schedule/dag.h"
#include "nimble/schedule/memory_plan.h"
#include "nimble/schedule/schedule.h"
#include "nimble/schedule/stream_assignment.h"

namespace nimble {

// The graph's ops and edges, and others that a schedule wants, as a plain DAG.
Dag dependency_dag(const Graph& graph, const std::vector<Edge>& extra_edges = {});

// Turns an assignment into a schedule: one task per op, the fewest waits (edges of the minimum
// equivalent graph that cross streams, less those that earlier waits imply, by vector clocks), and
// a memory plan for every intermediate that is neither an output nor listed in `unplanned`. Extra
// edges are kept as the graph's own are.
struct BuiltSchedule {
  Schedule schedule;
  MemoryPlanStats memory;
};
BuiltSchedule build_schedule(const Graph& graph, const StreamAssignment& assignment,
                             const std::vector<double>& cost_ns,
                             const std::vector<bool>& unplanned_memories = {},
                             const std::vector<Edge>& extra_edges = {});

// All ops on one stream, in recorded order.
StreamAssignment single_stream(const Graph& graph);

}  // namespace nimble
