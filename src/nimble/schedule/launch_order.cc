#include "nimble/schedule/launch_order.h"

#include <algorithm>
#include <numeric>

#include "nimble/base/error.h"

namespace nimble {
namespace {

// Paths that differ by less than this share of the longest one are equally urgent.
constexpr double kNearlyAsLong = 0.01;

// By node: from its start to the end, if only edges counted.
std::vector<double> longest_paths(const Dag& dag, const std::vector<double>& cost_ns) {
  NIMBLE_ASSERT(cost_ns.size() == dag.size());
  std::vector<double> paths(dag.size());
  for (size_t node = dag.size(); node-- > 0;) {
    for (uint32_t next : dag.successors[node]) paths[node] = std::max(paths[node], paths[next]);
    paths[node] += cost_ns[node];
  }
  return paths;
}

double longest_of(const std::vector<double>& paths) {
  return paths.empty() ? 0 : *std::max_element(paths.begin(), paths.end());
}

}  // namespace

std::vector<uint32_t> launch_order(const Dag& dag, const std::vector<double>& cost_ns,
                                   const std::vector<bool>& computes) {
  NIMBLE_ASSERT(computes.size() == dag.size());
  const std::vector<double> paths = longest_paths(dag, cost_ns);
  const double near = kNearlyAsLong * longest_of(paths);
  std::vector<uint32_t> missing(dag.size(), 0);
  for (const auto& targets : dag.successors)
    for (uint32_t to : targets) ++missing[to];
  std::vector<uint32_t> ready;
  for (uint32_t node = 0; node < dag.size(); ++node)
    if (missing[node] == 0) ready.push_back(node);
  std::vector<uint32_t> order;
  bool last_computes = false;
  while (!ready.empty()) {
    double longest = 0;
    for (uint32_t node : ready) longest = std::max(longest, paths[node]);
    auto best = ready.end();
    for (auto node = ready.begin(); node != ready.end(); ++node) {
      if (paths[*node] < longest - near) continue;
      const bool alternates = computes[*node] != last_computes;
      const bool best_alternates = best != ready.end() && computes[*best] != last_computes;
      if (best == ready.end() || (alternates && !best_alternates) ||
          (alternates == best_alternates && *node < *best))
        best = node;
    }
    const uint32_t chosen = *best;
    ready.erase(best);
    order.push_back(chosen);
    last_computes = computes[chosen];
    for (uint32_t to : dag.successors[chosen])
      if (--missing[to] == 0) ready.push_back(to);
  }
  return order;
}

StreamAssignment urgent_first(const Dag& dag, const std::vector<double>& cost_ns,
                              StreamAssignment assignment) {
  const std::vector<double> paths = longest_paths(dag, cost_ns);
  std::vector<double> begin(dag.size());  // as early as edges allow
  for (size_t node = 0; node < dag.size(); ++node)
    for (uint32_t next : dag.successors[node])
      begin[next] = std::max(begin[next], begin[node] + cost_ns[node]);
  const double longest = longest_of(paths);
  const auto is_critical = [&](uint32_t node) {
    return begin[node] + paths[node] >= longest * (1 - 1e-9);
  };
  std::vector<double> critical;  // time, by stream
  for (const auto& stream : assignment.streams) {
    double& time = critical.emplace_back();
    for (uint32_t node : stream)
      if (is_critical(node)) time += cost_ns[node];
  }
  std::vector<size_t> order(assignment.streams.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return critical[a] > critical[b]; });
  StreamAssignment sorted;
  for (size_t stream : order) sorted.streams.push_back(std::move(assignment.streams[stream]));
  return sorted;
}

}  // namespace nimble
