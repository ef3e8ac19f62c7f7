#include "nimble/passes/start_updates_early.h"

#include <algorithm>
#include <utility>

#include "nimble/graph/relink.h"

namespace nimble {
namespace {

// Whether an op of ours only updates what is the user's.
bool is_update(const Graph& graph, const Op& op) {
  if (!op.attributes) return false;
  bool writes = false;
  for (const Operand& operand : op.operands) {
    if (!operand.writes) continue;
    if (graph.memories[operand.memory.index].role == Role::kIntermediate) return false;
    writes = true;
  }
  return writes;
}

}  // namespace

// 1. An update that no other op waits for moves to behind the last op that it waits for.
// 2. Those that move to the same place keep their order.
// Nobody waits for any of them, so they need not be ordered among themselves.
void start_updates_early(Graph& graph) {
  const size_t count = graph.ops.size();
  std::vector<bool> moves(count);
  std::vector<size_t> last_source(count, 0);
  for (size_t i = 0; i < count; ++i) moves[i] = is_update(graph, graph.ops[i]);
  for (const Edge& edge : graph.edges) {
    moves[edge.before.index] = false;
    size_t& last = last_source[edge.after.index];
    last = std::max<size_t>(last, edge.before.index);
  }
  std::vector<std::vector<size_t>> behind(count);
  bool changed = false;
  for (size_t i = 0; i < count; ++i) {
    if (!moves[i]) continue;
    behind[last_source[i]].push_back(i);
    changed |= last_source[i] + 1 < i;
  }
  if (!changed) return;
  std::vector<Op> ordered;
  ordered.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (!moves[i]) ordered.push_back(std::move(graph.ops[i]));
    for (size_t moved : behind[i]) ordered.push_back(std::move(graph.ops[moved]));
  }
  graph.ops = std::move(ordered);
  relink(graph);
}

}  // namespace nimble
