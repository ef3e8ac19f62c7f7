#include "nimble/schedule/many_streams.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "nimble/schedule/one_stream.h"

namespace nimble {
namespace {

// Packing leaves gaps. If the arena is too large for all that is in use at once, less must be, or
// waits keep users of the same bytes apart.
constexpr double kShareInUse[] = {1, 0.95, 0.9, 0.8};

// Tasks never take just as long as expected: what a wait that only memory asks for costs, as a
// share of the average task. An estimate from AmoebaNet on two workers, 24 us a task, with several
// memory limits and wait costs: 5.4 to 5.8 ms with 119 to 151 waits, 5.6 to 6.3 ms with 216 to 229.
constexpr double kPriceOfWait = 0.15;

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
  double best_price = 0;
  const double price_of_wait = kPriceOfWait * std::accumulate(cost_ns.begin(), cost_ns.end(), 0.0) /
                               static_cast<double>(std::max<size_t>(cost_ns.size(), 1));
  for (double share : kShareInUse) {
    if (limited)
      bounded.memory_limit_bytes =
          static_cast<size_t>(share * static_cast<double>(options.memory_limit_bytes));
    BoundedSchedule assigned = assign_bounded_streams(dag, cost_ns, bounded);
    BuiltSchedule built = build_schedule(graph, assigned.assignment, cost_ns, unplanned_memories,
                                         {.memory_limit_bytes = options.memory_limit_bytes,
                                          .expected = std::move(assigned.expected)});
    const double price =
        assigned.makespan_ns + price_of_wait * static_cast<double>(built.schedule.wait_count());
    const auto excess = [&](const BuiltSchedule& schedule) {
      const size_t arena = schedule.schedule.arena_bytes;
      return arena - std::min(arena, options.memory_limit_bytes);
    };
    if (best.built.schedule.tasks.empty() ||
        std::pair(excess(built), price) < std::pair(excess(best.built), best_price)) {
      best = {std::move(built), assigned.makespan_ns, assigned.lower_bound_ns};
      best_price = price;
    }
    if (!limited) break;
  }
  return best;
}

}  // namespace nimble
