#include "nimble/passes/commit_updates.h"

#include <utility>

#include "nimble/graph/relink.h"
#include "nimble/passes/rewrite.h"

namespace nimble {
namespace {

// Whether an op may write a memory that it reads: element by element, through the same view.
bool updates_in_place(const Graph& graph, const Op& op, const Update& update) {
  if (attributes_of<Chain>(op) == nullptr) return false;
  const TensorDesc* written = nullptr;
  for (const Operand& operand : op.operands)
    if (operand.writes && operand.memory == update.value.memory) written = &graph.desc_of(operand);
  for (const Operand& operand : op.operands)
    if (operand.memory == update.target && !(graph.desc_of(operand) == *written)) return false;
  return true;
}

// Whether the op that makes the new contents can write them in place: it makes all of them, and
// nobody behind it wants the old ones.
bool can_write_there(const Graph& graph, const Uses& uses, const Update& update) {
  const OpId maker = uses.sole_writer(update.value.memory);
  if (!maker.valid() || !graph.ops[maker.index].attributes) return false;
  if (graph.memories[update.value.memory.index].bytes != graph.memories[update.target.index].bytes)
    return false;
  for (OpId writer : uses.writers(update.target))
    if (writer >= maker) return false;
  for (const Port& port : graph.outputs)
    if (port.memory == update.value.memory) return false;
  for (OpId reader : uses.readers(update.target)) {
    if (reader > maker) return false;
    if (reader == maker && !updates_in_place(graph, graph.ops[maker.index], update)) return false;
  }
  return true;
}

}  // namespace

void commit_updates(Graph& graph) {
  if (graph.updates.empty()) return;
  const Uses uses(graph);
  std::vector<MemoryId> now(graph.memories.size());  // by memory: where its contents are
  for (size_t m = 0; m < now.size(); ++m) now[m] = MemoryId(m);
  std::vector<Op> copies;
  for (const Update& update : std::exchange(graph.updates, {})) {
    graph.memories[update.target.index].is_updated = false;
    if (can_write_there(graph, uses, update)) {
      now[update.value.memory.index] = update.target;
      continue;
    }
    Op& copy = copies.emplace_back();
    copy.name = "update";
    copy.attributes = Copy{};
    copy.operands = {reading(update.value.memory, update.value.view),
                     writing(update.target, update.value.view)};
  }
  for (Op& op : graph.ops)
    for (Operand& operand : op.operands) operand.memory = now[operand.memory.index];
  for (size_t m = 0; m < now.size(); ++m) {
    bool leaves = false;
    for (const Port& port : graph.outputs) leaves |= port.memory == MemoryId(m);
    if (!leaves) graph.memories[m].is_output = false;
  }
  for (Op& copy : copies) graph.ops.push_back(std::move(copy));
  relink(graph);
}

}  // namespace nimble
