#include "nimble/schedule/capped_streams.h"

#include <algorithm>
#include <numeric>

namespace nimble {
namespace {

struct Interval {
  double begin = 0;
  double end = 0;
};

// As early as dependencies allow.
std::vector<Interval> earliest_times(const Dag& dag, const std::vector<double>& cost_ns) {
  std::vector<Interval> times(dag.size());
  for (size_t node = 0; node < dag.size(); ++node) {
    times[node].end = times[node].begin + (cost_ns.empty() ? 1.0 : cost_ns[node]);
    for (uint32_t next : dag.successors[node])
      times[next].begin = std::max(times[next].begin, times[node].end);
  }
  return times;
}

}  // namespace

StreamAssignment cap_streams(const Dag& dag, const StreamAssignment& assignment, size_t most,
                             const std::vector<double>& cost_ns) {
  if (assignment.streams.size() <= most) return assignment;
  const std::vector<Interval> times = earliest_times(dag, cost_ns);
  const auto& chains = assignment.streams;
  std::vector<size_t> order(chains.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return times[chains[a].front()].begin < times[chains[b].front()].begin;
  });
  StreamAssignment capped;
  std::vector<double> busy_until;
  for (size_t chain : order) {
    const double begin = times[chains[chain].front()].begin;
    size_t best = busy_until.size();
    for (size_t s = 0; s < busy_until.size(); ++s) {
      if (best == busy_until.size()) {
        best = s;
        continue;
      }
      const bool fits = busy_until[s] <= begin;
      const bool best_fits = busy_until[best] <= begin;
      const bool better = fits == best_fits ? (fits ? busy_until[s] > busy_until[best]
                                                    : busy_until[s] < busy_until[best])
                                            : fits;
      if (better) best = s;
    }
    const bool fits = best < busy_until.size() && busy_until[best] <= begin;
    if (!fits && busy_until.size() < most) {
      best = busy_until.size();
      busy_until.push_back(0);
      capped.streams.emplace_back();
    }
    auto& stream = capped.streams[best];
    stream.insert(stream.end(), chains[chain].begin(), chains[chain].end());
    busy_until[best] = std::max(busy_until[best], times[chains[chain].back()].end);
  }
  for (auto& stream : capped.streams) std::sort(stream.begin(), stream.end());
  return capped;
}

}  // namespace nimble
