#include "nimble/graph/relink.h"

#include "nimble/graph/hazards.h"

namespace nimble {

void relink(Graph& graph) {
  graph.values.clear();
  std::vector<ValueId> current(graph.memories.size());
  const auto start_value = [&](MemoryId memory, OpId producer) {
    graph.values.push_back({memory, producer, {}});
    return current[memory.index] = ValueId(graph.values.size() - 1);
  };
  const auto value_of = [&](MemoryId memory) {
    const ValueId value = current[memory.index];
    return value.valid() ? value : start_value(memory, OpId());
  };
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const OpId op(i);
    auto& operands = graph.ops[i].operands;
    for (Operand& operand : operands) {
      operand.before = operand.after = ValueId();
      if (!operand.reads) continue;
      operand.before = value_of(operand.memory);
      auto& readers = graph.values[operand.before.index].readers;
      if (readers.empty() || readers.back() != op) readers.push_back(op);
    }
    for (Operand& operand : operands) {
      if (!operand.writes) continue;
      const auto bytes = static_cast<int64_t>(graph.memories[operand.memory.index].bytes);
      const ValueId now = current[operand.memory.index];
      const bool whole = graph.bytes_touched(operand).covers({0, bytes, 0, 0});
      if (now.valid() && graph.values[now.index].producer == op) {
        operand.after = now;  // written through two views
      } else if (whole) {
        operand.after = start_value(operand.memory, op);
      } else {
        operand.after = value_of(operand.memory);
        if (!operand.before.valid()) operand.before = operand.after;
      }
    }
  }
  graph.edges = find_hazards(graph);
}

}  // namespace nimble
