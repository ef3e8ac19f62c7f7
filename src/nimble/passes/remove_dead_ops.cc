#include "nimble/passes/remove_dead_ops.h"

#include "nimble/graph/relink.h"
#include "nimble/passes/rewrite.h"

namespace nimble {

void remove_dead_ops(Graph& graph) {
  std::vector<bool> needed(graph.memories.size());  // by an op further down, or by the caller
  for (size_t m = 0; m < needed.size(); ++m) {
    const Memory& memory = graph.memories[m];
    needed[m] =
        memory.is_output || (memory.role != Role::kIntermediate && memory.role != Role::kFolded);
  }
  for (const Port& port : graph.outputs) needed[port.memory.index] = true;

  // Backwards, so that what only dead ops read is seen to be dead as well.
  const auto find_dead = [&](const std::vector<Op>& ops, bool framework_too) {
    std::vector<bool> dead(ops.size());
    for (size_t i = ops.size(); i-- > 0;) {
      const Op& op = ops[i];
      dead[i] = op.attributes.has_value() || framework_too;
      for (const Operand& operand : op.operands)
        if (operand.writes && needed[operand.memory.index]) dead[i] = false;
      if (dead[i]) continue;
      for (const Operand& operand : op.operands)
        if (operand.reads) needed[operand.memory.index] = true;
    }
    return dead;
  };
  const auto dead_ops = find_dead(graph.ops, false);
  // An op on constants has no effect but its result: else it had not been moved there.
  const auto dead_constants = find_dead(graph.constant_ops, true);

  const size_t ops_before = graph.ops.size();
  erase_ops(graph, dead_ops);
  size_t kept = 0;
  for (size_t i = 0; i < dead_constants.size(); ++i) {
    if (dead_constants[i]) continue;
    if (kept != i) graph.constant_ops[kept] = std::move(graph.constant_ops[i]);
    ++kept;
  }
  graph.constant_ops.resize(kept);
  if (graph.ops.size() != ops_before) relink(graph);
}

}  // namespace nimble
