#include "nimble/schedule/dag.h"

#include <algorithm>

#include "nimble/base/error.h"

namespace nimble {

size_t Dag::edge_count() const {
  size_t count = 0;
  for (const auto& targets : successors) count += targets.size();
  return count;
}

Dag make_dag(size_t size, const std::vector<std::pair<uint32_t, uint32_t>>& edges) {
  Dag dag(size);
  for (auto [from, to] : edges) {
    NIMBLE_ASSERT(from < to && to < size, "edge ", from, " -> ", to, " of ", size, " nodes");
    dag.successors[from].push_back(to);
  }
  for (auto& targets : dag.successors) {
    std::sort(targets.begin(), targets.end());
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  }
  return dag;
}

std::vector<std::vector<uint32_t>> predecessors(const Dag& dag) {
  std::vector<std::vector<uint32_t>> sources(dag.size());
  for (uint32_t from = 0; from < dag.size(); ++from)
    for (uint32_t to : dag.successors[from]) sources[to].push_back(from);
  return sources;
}

Reachability::Reachability(const Dag& dag) : rows_(dag.size(), dag.size()) {
  for (size_t from = dag.size(); from-- > 0;) {
    for (uint32_t to : dag.successors[from]) {
      if (rows_.test(from, to)) continue;  // so is all that `to` reaches
      rows_.set(from, to);
      add_bits(rows_.row(from), rows_.row(to));
    }
  }
}

// In rising order every detour to a successor goes over a smaller one, which was looked at before.
Dag minimum_equivalent_graph(const Dag& dag, const Reachability& reachability) {
  Dag reduced(dag.size());
  BitMatrix reached_by_detour(1, dag.size());
  const std::span<uint64_t> detours = reached_by_detour.row(0);
  for (uint32_t from = 0; from < dag.size(); ++from) {
    std::fill(detours.begin(), detours.end(), 0);
    for (uint32_t to : dag.successors[from]) {
      if (reached_by_detour.test(0, to)) continue;
      reduced.successors[from].push_back(to);
      add_bits(detours, reachability.rows().row(to));
    }
  }
  return reduced;
}

}  // namespace nimble
