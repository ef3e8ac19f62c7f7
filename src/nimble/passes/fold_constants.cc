#include "nimble/passes/fold_constants.h"

#include <algorithm>

#include "nimble/graph/relink.h"
#include "nimble/passes/rewrite.h"

namespace nimble {

void fold_constants(Graph& graph, const FoldConstantsOptions& options) {
  const Uses uses(graph);
  std::vector<bool> folded(graph.memories.size());
  std::vector<bool> moved(graph.ops.size());

  const auto can_fold = [&](OpId id) {
    const Op& op = graph.ops[id.index];
    if (!op.attributes && !(options.foldable && options.foldable(op))) return false;
    bool writes = false;
    for (const Operand& operand : op.operands) {
      const Memory& memory = graph.memories[operand.memory.index];
      if (memory.role == Role::kGenerator) return false;
      if (operand.reads && !folded[operand.memory.index] && !uses.is_constant(operand.memory))
        return false;
      // Nothing but whole, fresh memories of its own: a sole writer reads nothing of them.
      if (operand.writes && (memory.is_output || uses.sole_writer(operand.memory) != id))
        return false;
      writes = writes || operand.writes;
    }
    return writes;
  };

  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (!can_fold(OpId(i))) continue;
    moved[i] = true;
    for (const Operand& operand : graph.ops[i].operands)
      if (operand.writes) folded[operand.memory.index] = true;
  }
  if (std::none_of(moved.begin(), moved.end(), [](bool m) { return m; })) return;
  for (size_t i = 0; i < moved.size(); ++i)
    if (moved[i]) graph.constant_ops.push_back(graph.ops[i]);
  for (size_t m = 0; m < folded.size(); ++m)
    if (folded[m]) graph.memories[m].role = Role::kFolded;
  erase_ops(graph, moved);
  for (Op& op : graph.constant_ops)
    for (Operand& operand : op.operands) operand.before = operand.after = ValueId();
  relink(graph);
}

}  // namespace nimble
