#include "nimble/schedule/bounded_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "nimble/base/error.h"

namespace nimble {

BoundedProblem::BoundedProblem(const Dag& dag, std::vector<double> cost_ns, double wait_ns,
                               size_t worker_count)
    : sources(predecessors(dag)),
      successors(dag.successors),
      cost(std::move(cost_ns)),
      longest_path(dag.size(), 0),
      wait(wait_ns),
      workers(static_cast<uint32_t>(worker_count)) {
  NIMBLE_ASSERT(cost.size() == dag.size(), cost.size(), " costs for ", dag.size(), " nodes");
  for (size_t node = size(); node-- > 0;) {
    for (uint32_t to : successors[node])
      longest_path[node] = std::max(longest_path[node], longest_path[to]);
    longest_path[node] += cost[node];
  }
}

double BoundedProblem::total_cost() const {
  return std::accumulate(cost.begin(), cost.end(), 0.0);
}

double BoundedProblem::lower_bound() const {
  double bound = total_cost() / workers;
  for (double path : longest_path) bound = std::max(bound, path);
  return bound;
}

void simulate(const BoundedProblem& problem, const BoundedPlan& plan, BoundedTimes& times) {
  times.start.resize(problem.size());
  times.finish.resize(problem.size());
  times.cause.resize(problem.size());
  times.makespan = 0;
  times.crossings = 0;
  std::vector<uint32_t> last(problem.workers, BoundedTimes::kNothing);
  for (uint32_t node : plan.order) {
    const uint32_t worker = plan.worker[node];
    uint32_t cause = last[worker];
    double start = cause == BoundedTimes::kNothing ? 0 : times.finish[cause];
    for (uint32_t source : problem.sources[node]) {
      double arrival = times.finish[source];
      if (plan.worker[source] != worker) {
        arrival += problem.wait;
        ++times.crossings;
      }
      if (arrival > start) {
        start = arrival;
        cause = source;
      }
    }
    times.start[node] = start;
    times.finish[node] = start + problem.cost[node];
    times.cause[node] = cause;
    times.makespan = std::max(times.makespan, times.finish[node]);
    last[worker] = node;
  }
}

size_t most_bytes_taken(const MemoryUses& uses, const BoundedTimes& times) {
  struct Interval {
    double begin = std::numeric_limits<double>::max();
    double end = -1;
  };
  std::vector<Interval> intervals(uses.bytes.size());
  for (size_t node = 0; node < uses.memories.size(); ++node) {
    for (uint32_t memory : uses.memories[node]) {
      Interval& interval = intervals[memory];
      interval.begin = std::min(interval.begin, times.start[node]);
      interval.end = std::max(interval.end, times.finish[node]);
    }
  }
  std::vector<std::pair<double, int64_t>> changes;  // of those at one time, what ends first
  for (size_t memory = 0; memory < intervals.size(); ++memory) {
    const auto bytes = static_cast<int64_t>(uses.bytes[memory]);
    if (bytes == 0 || intervals[memory].end < 0) continue;
    changes.emplace_back(intervals[memory].begin, bytes);
    changes.emplace_back(intervals[memory].end, -bytes);
  }
  std::sort(changes.begin(), changes.end());
  int64_t taken = 0;
  int64_t most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, taken += change);
  return static_cast<size_t>(most);
}

size_t most_bytes_taken_serially(const MemoryUses& uses) {
  BoundedTimes times;
  for (size_t node = 0; node < uses.memories.size(); ++node) {
    times.start.push_back(static_cast<double>(node));
    times.finish.push_back(static_cast<double>(node + 1));
  }
  return most_bytes_taken(uses, times);
}

}  // namespace nimble
