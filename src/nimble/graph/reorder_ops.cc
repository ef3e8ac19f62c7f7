#include "nimble/graph/reorder_ops.h"

#include <algorithm>
#include <utility>

#include "nimble/base/error.h"

namespace nimble {

void reorder_ops(Graph& graph, const std::vector<uint32_t>& order) {
  NIMBLE_ASSERT(order.size() == graph.ops.size());
  std::vector<OpId> place(order.size());
  std::vector<Op> ops;
  for (uint32_t i = 0; i < order.size(); ++i) {
    place[order[i]] = OpId(i);
    ops.push_back(std::move(graph.ops[order[i]]));
  }
  graph.ops = std::move(ops);
  for (Edge& edge : graph.edges) {
    edge = {place[edge.before.index], place[edge.after.index]};
    NIMBLE_ASSERT(edge.before < edge.after, "ops in this order would break an edge");
  }
  std::sort(graph.edges.begin(), graph.edges.end());
  for (Value& value : graph.values) {
    if (value.producer.valid()) value.producer = place[value.producer.index];
    for (OpId& reader : value.readers) reader = place[reader.index];
    std::sort(value.readers.begin(), value.readers.end());
  }
}

}  // namespace nimble
