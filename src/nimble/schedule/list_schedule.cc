#include "nimble/schedule/list_schedule.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

#include "nimble/base/error.h"

namespace nimble {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Which bytes are in use, and which will be.
//
// Nodes that have not started can always run one after another in recorded order. `promised_[k]` is
// what is then in use while node k runs: what it would be had all run in that order, and what nodes
// that started out of turn took early.
class MemoryLedger {
 public:
  MemoryLedger(const MemoryUses* uses, size_t nodes, size_t limit)
      : uses_(uses), limit_(static_cast<int64_t>(std::min<size_t>(limit, INT64_MAX))) {
    if (uses_ == nullptr) return;
    first_user_.assign(uses_->bytes.size(), static_cast<uint32_t>(nodes));
    users_left_.assign(uses_->bytes.size(), 0);
    taken_.assign(uses_->bytes.size(), false);
    std::vector<uint32_t> last_user(uses_->bytes.size(), 0);
    for (uint32_t node = 0; node < nodes; ++node) {
      for (uint32_t memory : uses_->memories[node]) {
        first_user_[memory] = std::min(first_user_[memory], node);
        last_user[memory] = node;
        ++users_left_[memory];
      }
    }
    promised_.assign(nodes + 1, 0);
    for (size_t memory = 0; memory < first_user_.size(); ++memory) {
      if (users_left_[memory] == 0) continue;
      promised_[first_user_[memory]] += bytes(memory);
      promised_[last_user[memory] + 1] -= bytes(memory);
    }
    for (size_t node = 1; node <= nodes; ++node) promised_[node] += promised_[node - 1];
  }

  // `first`: the first node in recorded order that has not started.
  bool may_start(uint32_t node, uint32_t first) const {
    if (uses_ == nullptr) return true;
    int64_t fresh = 0;
    for (uint32_t memory : uses_->memories[node])
      if (!taken_[memory]) fresh += bytes(memory);
    if (fresh == 0) return true;
    if (in_use_ + fresh > limit_) return false;
    for (uint32_t k = first; k < node; ++k)
      if (promised_[k] + fresh > limit_ && promised_[k] + early(node, k) > limit_) return false;
    return true;
  }

  void start(uint32_t node, uint32_t first) {
    if (uses_ == nullptr) return;
    for (uint32_t memory : uses_->memories[node]) {
      if (taken_[memory]) continue;
      taken_[memory] = true;
      in_use_ += bytes(memory);
      for (uint32_t k = first; k < first_user_[memory]; ++k) promised_[k] += bytes(memory);
    }
  }

  void finish(uint32_t node) {
    if (uses_ == nullptr) return;
    for (uint32_t memory : uses_->memories[node])
      if (--users_left_[memory] == 0) in_use_ -= bytes(memory);
  }

 private:
  int64_t bytes(size_t memory) const { return static_cast<int64_t>(uses_->bytes[memory]); }

  // What `node` would take before node `k`, which comes first in recorded order, wants it.
  int64_t early(uint32_t node, uint32_t k) const {
    int64_t sum = 0;
    for (uint32_t memory : uses_->memories[node])
      if (!taken_[memory] && k < first_user_[memory]) sum += bytes(memory);
    return sum;
  }

  const MemoryUses* uses_;
  int64_t limit_;
  int64_t in_use_ = 0;
  std::vector<uint32_t> first_user_;  // by memory
  std::vector<uint32_t> users_left_;  // by memory: that have not ended
  std::vector<bool> taken_;           // by memory: at some time
  std::vector<int64_t> promised_;     // by node
};

class ListScheduler {
 public:
  ListScheduler(const BoundedProblem& problem, const ListOptions& options)
      : problem_(problem),
        options_(options),
        ledger_(options.memory_limit_bytes < std::numeric_limits<size_t>::max() ? options.uses
                                                                                : nullptr,
                problem.size(), options.memory_limit_bytes),
        work_before_(problem.size(), 0),
        missing_(problem.size(), 0),
        started_(problem.size(), false),
        arrival_(problem.size() * problem.workers, 0),
        free_at_(problem.workers, 0),
        nearly_(2 * problem.total_cost() /
                static_cast<double>(std::max<size_t>(problem.size(), 1))) {
    plan_.worker.assign(problem.size(), 0);
    times_.start.assign(problem.size(), 0);
    times_.finish.assign(problem.size(), 0);
    double work = 0;
    for (uint32_t node = 0; node < problem.size(); ++node) {
      work_before_[node] = std::exchange(work, work + problem.cost[node]);
      missing_[node] = problem.sources[node].size();
      if (missing_[node] == 0) ready_.push_back(node);
    }
  }

  BoundedPlan run(BoundedTimes& times) && {
    while (plan_.order.size() < problem_.size()) {
      const auto worker = static_cast<uint32_t>(std::min_element(free_at_.begin(), free_at_.end()) -
                                                free_at_.begin());
      end_nodes_until(free_at_[worker]);
      const uint32_t node = choose(worker);
      if (node != kNothing) {
        start(node, worker);
      } else {
        NIMBLE_ASSERT(next_event_ < kNever);
        free_at_[worker] = next_event_;
      }
    }
    times = std::move(times_);
    return std::move(plan_);
  }

 private:
  static constexpr uint32_t kNothing = UINT32_MAX;

  double arrival(uint32_t node, uint32_t worker) const {
    return arrival_[node * problem_.workers + worker];
  }

  void end_nodes_until(double time) {
    while (!running_.empty() && running_.top().first <= time) {
      ledger_.finish(running_.top().second);
      running_.pop();
    }
  }

  // The best node that may start on this worker now; if there is none, `next_event_` is when to
  // look again.
  uint32_t choose(uint32_t worker) {
    const double now = free_at_[worker];
    next_event_ = running_.empty() ? kNever : running_.top().first;
    candidates_.clear();
    for (uint32_t node : ready_) {
      if (work_before_[node] > work_before_[first_] + options_.run_ahead_ns) break;
      if (const double at = arrival(node, worker); at > now) {
        next_event_ = std::min(next_event_, at);
      } else {
        candidates_.push_back(node);
      }
    }
    double longest = 0;
    for (uint32_t node : candidates_) longest = std::max(longest, problem_.longest_path[node]);
    const auto rank = [&](uint32_t node) {
      const auto behind =
          nearly_ > 0 ? static_cast<int64_t>((longest - problem_.longest_path[node]) / nearly_) : 0;
      return std::tuple(behind, !is_home(node, worker), -affinity(node, worker), node);
    };
    while (!candidates_.empty()) {
      const auto best = std::min_element(candidates_.begin(), candidates_.end(),
                                         [&](uint32_t a, uint32_t b) { return rank(a) < rank(b); });
      if (ledger_.may_start(*best, first_)) return *best;
      candidates_.erase(best);
    }
    // Nobody runs, so nothing will be given back: the limit cannot be kept.
    if (next_event_ == kNever) return first_;
    return kNothing;
  }

  bool is_home(uint32_t node, uint32_t worker) const {
    return options_.homes != nullptr && !options_.homes->empty() &&
           (*options_.homes)[node] == worker;
  }

  int affinity(uint32_t node, uint32_t worker) const {
    int here = 0;
    for (uint32_t source : problem_.sources[node]) here += plan_.worker[source] == worker ? 1 : -1;
    return here;
  }

  void start(uint32_t node, uint32_t worker) {
    ready_.erase(std::lower_bound(ready_.begin(), ready_.end(), node));
    plan_.worker[node] = worker;
    plan_.order.push_back(node);
    started_[node] = true;
    ledger_.start(node, first_);
    while (first_ < problem_.size() && started_[first_]) ++first_;
    const double finish = free_at_[worker] + problem_.cost[node];
    times_.start[node] = std::exchange(free_at_[worker], finish);
    times_.finish[node] = finish;
    times_.makespan = std::max(times_.makespan, finish);
    running_.emplace(finish, node);
    for (uint32_t to : problem_.successors[node]) {
      for (uint32_t w = 0; w < problem_.workers; ++w) {
        double& at = arrival_[to * problem_.workers + w];
        at = std::max(at, finish + (w == worker ? 0 : problem_.wait));
      }
      if (--missing_[to] == 0)
        ready_.insert(std::lower_bound(ready_.begin(), ready_.end(), to), to);
    }
  }

  const BoundedProblem& problem_;
  const ListOptions& options_;
  MemoryLedger ledger_;
  std::vector<double> work_before_;  // by node, in recorded order
  std::vector<size_t> missing_;      // by node: predecessors that have not started
  std::vector<bool> started_;        // by node
  std::vector<double> arrival_;      // by node, then worker: when its predecessors are known to end
  std::vector<double> free_at_;      // by worker
  double nearly_;                    // paths that differ by less are taken for equally long
  uint32_t first_ = 0;               // in recorded order, that has not started
  std::vector<uint32_t> ready_;      // sorted; all predecessors have started
  std::vector<uint32_t> candidates_;
  double next_event_ = 0;
  using Running = std::pair<double, uint32_t>;  // until when, who
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
  BoundedPlan plan_;
  BoundedTimes times_;
};

}  // namespace

BoundedPlan list_schedule(const BoundedProblem& problem, const ListOptions& options,
                          BoundedTimes& times) {
  return ListScheduler(problem, options).run(times);
}

}  // namespace nimble
