#include "nimble/schedule/bounded.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "nimble/base/error.h"
#include "nimble/schedule/list_schedule.h"
#include "nimble/schedule/local_search.h"

namespace nimble {
namespace {

// How far ahead of the recorded order nodes may start, as a share of all work; the shortest that is
// at most so much slower than the best is taken.
constexpr double kRunAhead[] = {0.005, 0.02, 0.1, 1};
constexpr double kPriceOfMemory = 1.003;

StreamAssignment to_assignment(const BoundedPlan& plan, size_t workers) {
  StreamAssignment assignment;
  assignment.streams.resize(workers);
  for (uint32_t node : plan.order) assignment.streams[plan.worker[node]].push_back(node);
  std::erase_if(assignment.streams, [](const auto& stream) { return stream.empty(); });
  return assignment;
}

struct TimedPlan {
  BoundedPlan plan;
  BoundedTimes times;
};

TimedPlan serial_plan(const BoundedProblem& problem) {
  TimedPlan serial;
  serial.plan.order.resize(problem.size());
  std::iota(serial.plan.order.begin(), serial.plan.order.end(), 0);
  serial.plan.worker.assign(problem.size(), 0);
  simulate(problem, serial.plan, serial.times);
  return serial;
}

// The list schedule that runs ahead the least of those that are about as fast as the fastest.
TimedPlan best_list_schedule(const BoundedProblem& problem, ListOptions options) {
  std::vector<TimedPlan> tried;
  double fastest = std::numeric_limits<double>::max();
  for (double share : kRunAhead) {
    options.run_ahead_ns = share * problem.total_cost();
    TimedPlan& timed = tried.emplace_back();
    timed.plan = list_schedule(problem, options, timed.times);
    fastest = std::min(fastest, timed.times.makespan);
  }
  return *std::find_if(tried.begin(), tried.end(), [&](const TimedPlan& timed) {
    return timed.times.makespan <= fastest * kPriceOfMemory;
  });
}

TimedPlan find_plan(const BoundedProblem& problem, const BoundedOptions& options) {
  TimedPlan serial = serial_plan(problem);
  if (problem.workers == 1 || problem.size() < 2) return serial;
  const bool limited = options.memory_limit_bytes < std::numeric_limits<size_t>::max();
  NIMBLE_ASSERT(!limited || options.uses.memories.size() == problem.size());
  NIMBLE_ASSERT(options.homes.empty() || options.homes.size() == problem.size());

  ListOptions list_options;
  list_options.homes = options.homes.empty() ? nullptr : &options.homes;
  TimedPlan best = best_list_schedule(problem, list_options);
  improve_plan(problem, best.plan, options.search_steps);
  simulate(problem, best.plan, best.times);
  if (limited && most_bytes_taken(options.uses, best.times) > options.memory_limit_bytes) {
    list_options.memory_limit_bytes = options.memory_limit_bytes;
    list_options.uses = &options.uses;
    best = best_list_schedule(problem, list_options);
  }
  return best.times.makespan < serial.times.makespan ? best : serial;
}

}  // namespace

BoundedSchedule assign_bounded_streams(const Dag& dag, const std::vector<double>& cost_ns,
                                       const BoundedOptions& options) {
  const size_t workers = std::max<size_t>(options.workers, 1);
  // An edge that others imply never decides a start, so the search goes without.
  const BoundedProblem problem(minimum_equivalent_graph(dag, Reachability(dag)), cost_ns,
                               options.wait_ns, workers);
  TimedPlan found = find_plan(problem, options);
  BoundedSchedule result;
  result.assignment = to_assignment(found.plan, workers);
  result.makespan_ns = found.times.makespan;
  result.lower_bound_ns = problem.lower_bound();
  result.expected = {std::move(found.plan.order), std::move(found.times.start),
                     std::move(found.times.finish)};
  return result;
}

double simulate_makespan(const Dag& dag, const std::vector<double>& cost_ns,
                         const StreamAssignment& assignment, double wait_ns) {
  BoundedPlan plan;
  plan.order = execution_order(dag, assignment);
  plan.worker.resize(dag.size());
  for (uint32_t worker = 0; worker < assignment.streams.size(); ++worker)
    for (uint32_t node : assignment.streams[worker]) plan.worker[node] = worker;
  BoundedTimes times;
  simulate(BoundedProblem(dag, cost_ns, wait_ns, assignment.streams.size()), plan, times);
  return times.makespan;
}

}  // namespace nimble
