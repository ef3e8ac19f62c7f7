#include "nimble/passes/round.h"

#include <algorithm>
#include <utility>

namespace nimble {

Round::Round(Graph& graph)
    : graph(graph),
      uses(graph),
      touched_(graph.ops.size()),
      erased_(graph.ops.size()),
      ahead_(graph.ops.size()) {
  for (const Op& op : graph.ops) next_group_ = std::max(next_group_, op.group + 1);
}

void Round::replace(OpId id, Op op) {
  graph.ops[id.index] = std::move(op);
  touched_[id.index] = true;
  changed_ = true;
}

void Round::erase(OpId id) {
  touched_[id.index] = true;
  erased_[id.index] = true;
  changed_ = true;
}

void Round::insert_before(OpId id, Op op) {
  ahead_[id.index].push_back(std::move(op));
  changed_ = true;
}

OpId Round::maker(const Operand& operand) const {
  const OpId writer = uses.sole_writer(operand.memory);
  return touched(writer) || !op(writer).attributes ? OpId() : writer;
}

OpId Round::private_maker(const Operand& operand, OpId reader) const {
  return uses.sole_reader(operand.memory) == reader ? maker(operand) : OpId();
}

OpId Round::place_for_both(OpId first, OpId second, bool shared) const {
  std::vector<MemoryId> made;
  for (const Operand& operand : op(first).operands)
    if (operand.writes) made.push_back(operand.memory);
  const auto is_made = [&](MemoryId memory) {
    return std::find(made.begin(), made.end(), memory) != made.end();
  };

  const bool first_can_move = [&] {
    for (const Operand& operand : op(first).operands)
      if (operand.reads && !uses.is_stable(operand.memory)) return false;
    for (MemoryId memory : made) {
      if (!shared) continue;
      if (uses.sole_writer(memory) != first) return false;
      const auto& readers = uses.readers(memory);
      if (!std::all_of(readers.begin(), readers.end(),
                       [&](OpId reader) { return reader >= second && !touched(reader); }))
        return false;
    }
    return true;
  }();
  if (first_can_move) return second;

  for (const Operand& operand : op(second).operands) {
    if (operand.writes && uses.sole_writer(operand.memory) != second) return OpId();
    if (!operand.reads || is_made(operand.memory)) continue;
    if (!uses.is_stable(operand.memory)) return OpId();
    const OpId writer = uses.sole_writer(operand.memory);
    if (writer.valid() && (touched(writer) || writer > first)) return OpId();
  }
  return first;
}

void Round::finish() {
  std::vector<Op> ops;
  ops.reserve(graph.ops.size());
  for (size_t i = 0; i < erased_.size(); ++i) {
    for (Op& inserted : ahead_[i]) ops.push_back(std::move(inserted));
    if (!erased_[i]) ops.push_back(std::move(graph.ops[i]));
  }
  graph.ops = std::move(ops);
}

std::optional<TensorDesc> seen_through(const TensorDesc& view, const TensorDesc& made,
                                       const TensorDesc& source) {
  if (same_elements(view, made)) return reshaped(source, view.sizes);
  return moved_view(view, made, source);
}

}  // namespace nimble
