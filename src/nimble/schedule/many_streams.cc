#include "nimble/schedule/many_streams.h"

#include <utility>

#include "nimble/schedule/one_stream.h"

namespace nimble {
namespace {

// Packing leaves gaps: if the arena is too large for all that is in use at once, less must be.
constexpr double kShareInUse[] = {1, 0.95, 0.9, 0.8};

constexpr uint32_t kNowhere = UINT32_MAX;

// Where the parts of each op would be if it ran alone.
std::vector<uint32_t> homes_of(const Graph& graph, size_t workers,
                               const std::vector<double>& cost_ns) {
  std::vector<uint32_t> homes(graph.ops.size(), kNowhere);
  const StreamAssignment assignment = one_op_at_a_time(graph, workers, cost_ns);
  for (uint32_t worker = 0; worker < assignment.streams.size(); ++worker)
    for (uint32_t node : assignment.streams[worker])
      if (graph.ops[node].part) homes[node] = worker;
  return homes;
}

}  // namespace

ManyStreams build_many_streams(const Graph& graph, const std::vector<double>& cost_ns,
                               const ManyStreamsOptions& options,
                               const std::vector<bool>& unplanned_memories) {
  const Dag dag = dependency_dag(graph);
  BoundedOptions bounded{.workers = options.workers,
                         .wait_ns = options.wait_ns,
                         .search_steps = options.search_steps,
                         .homes = homes_of(graph, options.workers, cost_ns)};
  const bool limited = options.memory_limit_bytes < std::numeric_limits<size_t>::max();
  if (limited) bounded.uses = planned_memory_uses(graph, unplanned_memories);
  ManyStreams best;
  for (double share : kShareInUse) {
    if (limited)
      bounded.memory_limit_bytes =
          static_cast<size_t>(share * static_cast<double>(options.memory_limit_bytes));
    BoundedSchedule assigned = assign_bounded_streams(dag, cost_ns, bounded);
    BuiltSchedule built = build_schedule(graph, assigned.assignment, cost_ns, unplanned_memories,
                                         {.memory_limit_bytes = options.memory_limit_bytes,
                                          .expected = std::move(assigned.expected)});
    const size_t arena = built.schedule.arena_bytes;
    if (best.built.schedule.tasks.empty() || arena < best.built.schedule.arena_bytes)
      best = {std::move(built), assigned.makespan_ns, assigned.lower_bound_ns};
    if (arena <= options.memory_limit_bytes) break;
  }
  return best;
}

}  // namespace nimble
