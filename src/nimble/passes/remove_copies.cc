#include "nimble/passes/remove_copies.h"

#include <algorithm>

#include "nimble/graph/relink.h"
#include "nimble/passes/rewrite.h"

namespace nimble {
namespace {

bool is_needless(const Graph& graph, const Uses& uses, OpId id) {
  const Op& op = graph.ops[id.index];
  if (!attributes_of<Copy>(op)) return false;
  const Operand& from = op.operands[0];
  const Operand& to = op.operands[1];
  const Memory& source = graph.memories[from.memory.index];
  const Memory& copy = graph.memories[to.memory.index];
  const TensorDesc& a = graph.desc_of(from);
  const TensorDesc& b = graph.desc_of(to);
  const auto& readers = uses.readers(to.memory);
  return source.role == Role::kIntermediate && uses.is_stable(from.memory) &&
         copy.role == Role::kIntermediate && !copy.is_output && uses.sole_writer(to.memory) == id &&
         a.dtype == b.dtype && a.strides == b.strides && a.conjugate == b.conjugate &&
         a.negative == b.negative && std::all_of(readers.begin(), readers.end(), [&](OpId reader) {
           return graph.ops[reader.index].attributes.has_value();
         });
}

// Each reader's view, as far away from the beginning of what was copied.
void read_source_instead(Graph& graph, const Uses& uses, const Op& copy) {
  const Operand from = copy.operands[0];
  const Operand to = copy.operands[1];
  const int64_t moved = graph.desc_of(from).offset - graph.desc_of(to).offset;
  for (OpId reader : uses.readers(to.memory)) {
    for (Operand& operand : graph.ops[reader.index].operands) {
      if (operand.memory != to.memory) continue;
      TensorDesc desc = graph.desc_of(operand);
      desc.offset += moved;
      operand = reading(from.memory, add_view(graph, std::move(desc)));
    }
  }
}

}  // namespace

void remove_copies(Graph& graph) {
  const Uses uses(graph);
  std::vector<bool> erased(graph.ops.size());
  bool changed = false;
  // In program order: a copy of a copy reads the first source by the time it is looked at.
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (!is_needless(graph, uses, OpId(i))) continue;
    read_source_instead(graph, uses, graph.ops[i]);
    erased[i] = changed = true;
  }
  if (!changed) return;
  erase_ops(graph, erased);
  relink(graph);
}

}  // namespace nimble
