#include "nimble/schedule/bounded.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "nimble/base/error.h"

namespace nimble {
namespace {

constexpr uint32_t kNothing = UINT32_MAX;

// Who runs what, and when relative to the others. Workers cannot deadlock: each runs its nodes in
// the order of one common list, which keeps every edge.
struct Plan {
  std::vector<uint32_t> order;   // all nodes
  std::vector<uint32_t> worker;  // by node
};

struct Timeline {
  std::vector<double> start;    // by node
  std::vector<double> finish;   // by node
  std::vector<uint32_t> cause;  // by node: the one whose end let it start; none at time zero
  double makespan = 0;
  size_t crossings = 0;  // edges between workers
};

// What a simulation needs and a search does not change.
struct Problem {
  std::vector<std::vector<uint32_t>> sources;  // predecessors by node
  std::vector<std::vector<uint32_t>> successors;
  std::vector<double> cost;
  double wait = 0;
  uint32_t workers = 1;

  size_t size() const { return cost.size(); }
};

void simulate(const Problem& problem, const Plan& plan, Timeline& timeline) {
  timeline.start.resize(problem.size());
  timeline.finish.resize(problem.size());
  timeline.cause.resize(problem.size());
  timeline.makespan = 0;
  timeline.crossings = 0;
  std::vector<uint32_t> last(problem.workers, kNothing);
  for (uint32_t node : plan.order) {
    const uint32_t worker = plan.worker[node];
    uint32_t cause = last[worker];
    double start = cause == kNothing ? 0 : timeline.finish[cause];
    for (uint32_t source : problem.sources[node]) {
      double arrival = timeline.finish[source];
      if (plan.worker[source] != worker) {
        arrival += problem.wait;
        ++timeline.crossings;
      }
      if (arrival > start) {
        start = arrival;
        cause = source;
      }
    }
    timeline.start[node] = start;
    timeline.finish[node] = start + problem.cost[node];
    timeline.cause[node] = cause;
    timeline.makespan = std::max(timeline.makespan, timeline.finish[node]);
    last[worker] = node;
  }
}

// By node: the time from its start to the end, if nothing but edges held anyone up.
std::vector<double> longest_paths(const Problem& problem) {
  std::vector<double> path(problem.size(), 0);
  for (size_t node = problem.size(); node-- > 0;) {
    for (uint32_t to : problem.successors[node]) path[node] = std::max(path[node], path[to]);
    path[node] += problem.cost[node];
  }
  return path;
}

// What one worker does so far, and where something still fits in.
class WorkerTime {
 public:
  // The earliest start of a task that can start at `ready`.
  double earliest_start(double ready, double cost) const {
    double start = ready;
    for (auto busy = first_that_ends_after(ready); busy != busy_.end(); ++busy) {
      if (start + cost <= busy->start) break;
      start = std::max(start, busy->finish);
    }
    return start;
  }

  void occupy(double start, double finish) {
    if (start == finish) return;
    busy_.insert(first_that_ends_after(start), {start, finish});
  }

 private:
  struct Interval {
    double start;
    double finish;
  };

  std::vector<Interval>::const_iterator first_that_ends_after(double time) const {
    return std::upper_bound(busy_.begin(), busy_.end(), time,
                            [](double t, const Interval& busy) { return t < busy.finish; });
  }

  std::vector<Interval> busy_;  // in order
};

// Longest path first, each on the worker where it ends earliest, in a gap if it fits.
Plan list_schedule(const Problem& problem, const std::vector<double>& longest_path) {
  Plan plan;
  plan.worker.assign(problem.size(), 0);
  std::vector<double> start(problem.size(), 0);
  std::vector<double> finish(problem.size(), 0);
  std::vector<WorkerTime> workers(problem.workers);
  std::vector<size_t> missing(problem.size());
  const auto runs_later = [&](uint32_t a, uint32_t b) {
    return longest_path[a] != longest_path[b] ? longest_path[a] < longest_path[b] : a > b;
  };
  std::vector<uint32_t> ready;  // a heap
  for (uint32_t node = 0; node < problem.size(); ++node) {
    missing[node] = problem.sources[node].size();
    if (missing[node] == 0) ready.push_back(node);
  }
  std::make_heap(ready.begin(), ready.end(), runs_later);

  while (!ready.empty()) {
    std::pop_heap(ready.begin(), ready.end(), runs_later);
    const uint32_t node = ready.back();
    ready.pop_back();
    uint32_t best = kNothing;
    size_t fewest_crossings = 0;
    for (uint32_t worker = 0; worker < problem.workers; ++worker) {
      double arrival = 0;
      size_t crossings = 0;
      for (uint32_t source : problem.sources[node]) {
        const bool crosses = plan.worker[source] != worker;
        crossings += crosses;
        arrival = std::max(arrival, finish[source] + (crosses ? problem.wait : 0));
      }
      const double earliest = workers[worker].earliest_start(arrival, problem.cost[node]);
      if (best != kNothing &&
          std::pair(earliest, crossings) >= std::pair(start[node], fewest_crossings))
        continue;
      fewest_crossings = crossings;
      best = worker;
      start[node] = earliest;
    }
    plan.worker[node] = best;
    finish[node] = start[node] + problem.cost[node];
    workers[best].occupy(start[node], finish[node]);
    plan.order.push_back(node);
    for (uint32_t to : problem.successors[node]) {
      if (--missing[to] > 0) continue;
      ready.push_back(to);
      std::push_heap(ready.begin(), ready.end(), runs_later);
    }
  }
  // By time; of those that start together first the ones that take none, and then as listed,
  // which keeps every edge.
  std::stable_sort(plan.order.begin(), plan.order.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(start[a], finish[a]) < std::pair(start[b], finish[b]);
  });
  return plan;
}

// Changes nodes on the critical path, to take less time, and nodes next to another worker, for
// fewer edges between workers. Keeps a change that is no worse, time before edges.
class LocalSearch {
 public:
  LocalSearch(const Problem& problem, Plan plan)
      : problem_(problem), plan_(std::move(plan)), position_(problem.size()) {
    simulate(problem_, plan_, now_);
    sort_by_start();
    find_critical_path();
  }

  void run(size_t steps) {
    for (size_t step = 0; step < steps; ++step) {
      if (!try_change()) continue;
      simulate(problem_, plan_, trial_);
      const bool falls = trial_.makespan < now_.makespan;
      const bool keeps = trial_.makespan == now_.makespan && trial_.crossings <= now_.crossings;
      if (!falls && !keeps) {
        undo();
        continue;
      }
      std::swap(now_, trial_);
      if (falls) sort_by_start();
      find_critical_path();
    }
  }

  const Plan& plan() const { return plan_; }
  double makespan() const { return now_.makespan; }

 private:
  static constexpr size_t kLongestRun = 8;      // nodes of the path that move together
  static constexpr size_t kNeighbourhood = 16;  // how far apart in order two swapped nodes are

  size_t random_below(size_t bound) { return rng_() % bound; }

  // So that a node that changes its worker comes at its time there.
  void sort_by_start() {
    std::stable_sort(plan_.order.begin(), plan_.order.end(),
                     [&](uint32_t a, uint32_t b) { return now_.start[a] < now_.start[b]; });
    for (uint32_t i = 0; i < plan_.order.size(); ++i) position_[plan_.order[i]] = i;
  }

  void find_critical_path() {
    critical_.clear();
    const auto last = std::max_element(now_.finish.begin(), now_.finish.end());
    for (auto node = static_cast<uint32_t>(last - now_.finish.begin()); node != kNothing;
         node = now_.cause[node])
      critical_.push_back(node);
  }

  bool try_change() {
    old_workers_.clear();
    moved_from_ = moved_to_ = 0;
    const size_t place = random_below(critical_.size());
    switch (random_below(6)) {
      case 0:
        return swap_with_neighbour(critical_[place]);
      case 1:
        return start_earlier(critical_[place]);
      case 2:
      case 3:
        return move_run(place);
      default:
        return join_source(static_cast<uint32_t>(random_below(problem_.size())));
    }
  }

  bool move_run(size_t place) {
    const size_t length = 1 + random_below(kLongestRun);
    const auto worker = static_cast<uint32_t>(random_below(problem_.workers));
    for (size_t i = place; i < std::min(place + length, critical_.size()); ++i)
      if (plan_.worker[critical_[i]] != worker) set_worker(critical_[i], worker);
    return !old_workers_.empty();
  }

  // Moves the first node from here on that has a predecessor on another worker to that worker.
  bool join_source(uint32_t begin) {
    for (uint32_t i = 0; i < problem_.size(); ++i) {
      const auto node = static_cast<uint32_t>((begin + i) % problem_.size());
      for (uint32_t source : problem_.sources[node]) {
        if (plan_.worker[source] == plan_.worker[node]) continue;
        set_worker(node, plan_.worker[source]);
        return true;
      }
    }
    return false;
  }

  bool swap_with_neighbour(uint32_t node) {
    const size_t place = position_[node] + random_below(2 * kNeighbourhood + 1);
    if (place < kNeighbourhood || place - kNeighbourhood >= plan_.order.size()) return false;
    const uint32_t other = plan_.order[place - kNeighbourhood];
    const uint32_t worker = plan_.worker[node];
    const uint32_t other_worker = plan_.worker[other];
    if (worker == other_worker) return false;
    set_worker(node, other_worker);
    set_worker(other, worker);
    return true;
  }

  // Moves a node up in the common list, at most to behind its last predecessor.
  bool start_earlier(uint32_t node) {
    uint32_t earliest = 0;
    for (uint32_t source : problem_.sources[node])
      earliest = std::max(earliest, position_[source] + 1);
    const uint32_t from = position_[node];
    if (earliest == from) return false;
    moved_from_ = from;
    moved_to_ = earliest + random_below(from - earliest);
    move_in_order(moved_from_, moved_to_);
    return true;
  }

  void set_worker(uint32_t node, uint32_t worker) {
    old_workers_.emplace_back(node, plan_.worker[node]);
    plan_.worker[node] = worker;
  }

  void move_in_order(size_t from, size_t to) {
    const auto begin = plan_.order.begin();
    if (from > to) {
      std::rotate(begin + to, begin + from, begin + from + 1);
    } else {
      std::rotate(begin + from, begin + from + 1, begin + to + 1);
    }
    for (size_t i = std::min(from, to); i <= std::max(from, to); ++i)
      position_[plan_.order[i]] = static_cast<uint32_t>(i);
  }

  void undo() {
    for (auto [node, worker] : old_workers_) plan_.worker[node] = worker;
    if (moved_from_ != moved_to_) move_in_order(moved_to_, moved_from_);
  }

  const Problem& problem_;
  Plan plan_;
  std::vector<uint32_t> position_;  // by node: its place in the common list
  Timeline now_;
  Timeline trial_;
  std::vector<uint32_t> critical_;  // from the end to the start
  std::vector<std::pair<uint32_t, uint32_t>> old_workers_;
  size_t moved_from_ = 0;
  size_t moved_to_ = 0;
  std::mt19937 rng_;  // the default seed: the same result every time
};

Problem make_problem(const Dag& dag, const std::vector<double>& cost_ns, double wait_ns,
                     size_t workers) {
  NIMBLE_ASSERT(cost_ns.size() == dag.size(), cost_ns.size(), " costs for ", dag.size(), " nodes");
  return {predecessors(dag), dag.successors, cost_ns, wait_ns, static_cast<uint32_t>(workers)};
}

StreamAssignment to_assignment(const Plan& plan, size_t workers) {
  StreamAssignment assignment;
  assignment.streams.resize(workers);
  for (uint32_t node : plan.order) assignment.streams[plan.worker[node]].push_back(node);
  std::erase_if(assignment.streams, [](const auto& stream) { return stream.empty(); });
  return assignment;
}

}  // namespace

BoundedSchedule assign_bounded_streams(const Dag& dag, const std::vector<double>& cost_ns,
                                       const BoundedOptions& options) {
  const size_t workers = std::max<size_t>(options.workers, 1);
  // An edge that others imply never decides a start, so the search goes without.
  const Problem problem = make_problem(minimum_equivalent_graph(dag, Reachability(dag)), cost_ns,
                                       options.wait_ns, workers);
  const std::vector<double> longest_path = longest_paths(problem);
  const double total = std::accumulate(cost_ns.begin(), cost_ns.end(), 0.0);
  BoundedSchedule result;
  result.lower_bound_ns = total / static_cast<double>(workers);
  for (double path : longest_path) result.lower_bound_ns = std::max(result.lower_bound_ns, path);

  Plan serial;
  serial.order.resize(dag.size());
  std::iota(serial.order.begin(), serial.order.end(), 0);
  serial.worker.assign(dag.size(), 0);
  Timeline timeline;
  simulate(problem, serial, timeline);
  result.makespan_ns = timeline.makespan;
  result.assignment = to_assignment(serial, workers);
  if (workers == 1 || dag.size() < 2) return result;

  LocalSearch search(problem, list_schedule(problem, longest_path));
  search.run(options.search_steps);
  if (search.makespan() < result.makespan_ns) {
    result.makespan_ns = search.makespan();
    result.assignment = to_assignment(search.plan(), workers);
  }
  return result;
}

double simulate_makespan(const Dag& dag, const std::vector<double>& cost_ns,
                         const StreamAssignment& assignment, double wait_ns) {
  Plan plan;
  plan.order = execution_order(dag, assignment);
  plan.worker.resize(dag.size());
  for (uint32_t worker = 0; worker < assignment.streams.size(); ++worker)
    for (uint32_t node : assignment.streams[worker]) plan.worker[node] = worker;
  Timeline timeline;
  simulate(make_problem(dag, cost_ns, wait_ns, assignment.streams.size()), plan, timeline);
  return timeline.makespan;
}

}  // namespace nimble
