#include "nimble/schedule/local_search.h"

#include <algorithm>
#include <random>
#include <utility>

namespace nimble {
namespace {

class LocalSearch {
 public:
  LocalSearch(const BoundedProblem& problem, BoundedPlan plan)
      : problem_(problem),
        plan_(std::move(plan)),
        position_(problem.size()),
        last_(problem.workers),
        disturbed_(problem.workers) {
    simulate(problem_, plan_, times_);
    sort_by_start();
    find_critical_path();
  }

  void run(size_t steps) {
    const double lower_bound = problem_.lower_bound();
    for (size_t step = 0; step < steps; ++step) {
      const double before = times_.makespan;
      if (before <= lower_bound && times_.crossings == 0) return;  // nothing left to gain
      if (!try_change()) continue;
      const bool keeps = simulate_change() &&
                         (times_.makespan < before || times_.crossings <= crossings_before_change_);
      if (!keeps) {
        undo();
        continue;
      }
      if (times_.makespan < before) sort_by_start();
      find_critical_path();
    }
  }

  const BoundedPlan& plan() const { return plan_; }

 private:
  static constexpr uint32_t kNothing = BoundedTimes::kNothing;
  static constexpr size_t kLongestRun = 8;      // nodes of the path that move together
  static constexpr size_t kNeighbourhood = 16;  // how far apart in order two swapped nodes are

  struct OldTimes {
    uint32_t node;
    double start;
    double finish;
    uint32_t cause;
  };

  size_t random_below(size_t bound) { return rng_() % bound; }

  // So that a node that changes its worker comes at its time there.
  void sort_by_start() {
    std::stable_sort(plan_.order.begin(), plan_.order.end(),
                     [&](uint32_t a, uint32_t b) { return times_.start[a] < times_.start[b]; });
    for (uint32_t i = 0; i < plan_.order.size(); ++i) position_[plan_.order[i]] = i;
  }

  void find_critical_path() {
    critical_.clear();
    const auto last = std::max_element(times_.finish.begin(), times_.finish.end());
    for (auto node = static_cast<uint32_t>(last - times_.finish.begin()); node != kNothing;
         node = times_.cause[node])
      critical_.push_back(node);
  }

  bool try_change() {
    old_workers_.clear();
    old_times_.clear();
    moved_from_ = moved_to_ = 0;
    crossings_before_change_ = times_.crossings;
    makespan_before_change_ = times_.makespan;
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
    moved_to_ = static_cast<uint32_t>(earliest + random_below(from - earliest));
    move_in_order(moved_from_, moved_to_);
    return true;
  }

  void set_worker(uint32_t node, uint32_t worker) {
    old_workers_.emplace_back(node, plan_.worker[node]);
    times_.crossings -= crossings_of(node);
    plan_.worker[node] = worker;
    times_.crossings += crossings_of(node);
  }

  size_t crossings_of(uint32_t node) const {
    size_t count = 0;
    for (const auto* neighbours : {&problem_.sources[node], &problem_.successors[node]})
      for (uint32_t other : *neighbours) count += plan_.worker[other] != plan_.worker[node];
    return count;
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

  // Simulates from the first node that the change concerns to where nothing is different any more.
  // False as soon as it is clear that it takes longer than before.
  bool simulate_change() {
    uint32_t at = moved_to_;
    uint32_t reach = moved_from_;  // the last position that has to be looked at
    if (moved_from_ == moved_to_) {
      at = UINT32_MAX;
      for (auto [node, worker] : old_workers_) {
        at = std::min(at, position_[node]);
        reach = std::max(reach, position_[node]);
      }
    }
    find_last_before(at);
    disturbed_.assign(problem_.workers, false);
    size_t disturbed_workers = 0;
    const auto disturb = [&](uint32_t worker, bool yes) {
      if (disturbed_[worker] != yes) disturbed_workers += yes ? 1 : -1;
      disturbed_[worker] = yes;
    };
    if (moved_from_ != moved_to_) disturb(plan_.worker[plan_.order[moved_to_]], true);
    for (auto [node, worker] : old_workers_) {
      // Early is harmless: it ends at the first node that is as before.
      disturb(worker, true);
      disturb(plan_.worker[node], true);
    }
    for (; at < plan_.order.size() && (at <= reach || disturbed_workers > 0); ++at) {
      const uint32_t node = plan_.order[at];
      const uint32_t worker = plan_.worker[node];
      uint32_t cause = last_[worker];
      double start = cause == kNothing ? 0 : times_.finish[cause];
      for (uint32_t source : problem_.sources[node]) {
        const double arrival =
            times_.finish[source] + (plan_.worker[source] != worker ? problem_.wait : 0);
        if (arrival > start) {
          start = arrival;
          cause = source;
        }
      }
      if (start + problem_.longest_path[node] > makespan_before_change_ * kRounding) return false;
      last_[worker] = node;
      const bool same = times_.start[node] == start;
      // Within `reach` a node may have changed its neighbours though not its time.
      if (at > reach || !same) disturb(worker, !same);
      if (same && times_.cause[node] == cause) continue;
      old_times_.push_back({node, times_.start[node], times_.finish[node], times_.cause[node]});
      times_.start[node] = start;
      times_.finish[node] = start + problem_.cost[node];
      times_.cause[node] = cause;
      if (same) continue;
      for (uint32_t to : problem_.successors[node]) reach = std::max(reach, position_[to]);
    }
    times_.makespan = *std::max_element(times_.finish.begin(), times_.finish.end());
    return times_.makespan <= makespan_before_change_;
  }

  // What each worker runs last before a position in the common list.
  void find_last_before(uint32_t position) {
    std::fill(last_.begin(), last_.end(), kNothing);
    size_t found = 0;
    while (position-- > 0 && found < last_.size()) {
      uint32_t& last = last_[plan_.worker[plan_.order[position]]];
      if (last != kNothing) continue;
      last = plan_.order[position];
      ++found;
    }
  }

  void undo() {
    for (const OldTimes& old : old_times_) {
      times_.start[old.node] = old.start;
      times_.finish[old.node] = old.finish;
      times_.cause[old.node] = old.cause;
    }
    times_.makespan = makespan_before_change_;
    times_.crossings = crossings_before_change_;
    for (auto [node, worker] : old_workers_) plan_.worker[node] = worker;
    if (moved_from_ != moved_to_) move_in_order(moved_to_, moved_from_);
  }

  // Sums in another order differ in their last digits.
  static constexpr double kRounding = 1 + 1e-12;

  const BoundedProblem& problem_;
  BoundedPlan plan_;
  std::vector<uint32_t> position_;  // by node: its place in the common list
  BoundedTimes times_;              // of the plan
  std::vector<uint32_t> critical_;  // from the end to the start

  // The change that is tried, and what it takes to undo it.
  std::vector<std::pair<uint32_t, uint32_t>> old_workers_;
  uint32_t moved_from_ = 0;
  uint32_t moved_to_ = 0;
  std::vector<OldTimes> old_times_;
  size_t crossings_before_change_ = 0;
  double makespan_before_change_ = 0;

  std::vector<uint32_t> last_;   // by worker: its last node so far
  std::vector<bool> disturbed_;  // by worker: its next node may start at another time
  std::mt19937 rng_;             // the default seed: the same result every time
};

}  // namespace

void improve_plan(const BoundedProblem& problem, BoundedPlan& plan, size_t steps) {
  if (problem.size() < 2) return;
  LocalSearch search(problem, std::move(plan));
  search.run(steps);
  plan = search.plan();
}

}  // namespace nimble
