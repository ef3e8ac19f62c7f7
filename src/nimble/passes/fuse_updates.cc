#include "nimble/passes/fuse_updates.h"

#include <algorithm>

#include "nimble/passes/chain_builder.h"
#include "nimble/passes/round.h"

namespace nimble {
namespace {

constexpr size_t kMostOperands = 14;  // Adam has 7 inputs and 4 results
constexpr size_t kMostSteps = 24;

bool writes(const Op& op, MemoryId memory) {
  return std::any_of(op.operands.begin(), op.operands.end(), [&](const Operand& operand) {
    return operand.writes && operand.memory == memory;
  });
}

bool is_update(const Op& op) {
  return std::any_of(op.operands.begin(), op.operands.end(), [&](const Operand& operand) {
    return operand.reads && writes(op, operand.memory);
  });
}

// Whether an op between the two needs `first` to stay where it is.
bool is_in_the_way(const Graph& graph, OpId first, OpId second) {
  for (size_t i = first.index + 1; i < second.index; ++i)
    for (const Operand& other : graph.ops[i].operands)
      for (const Operand& operand : graph.ops[first.index].operands)
        if (other.memory == operand.memory && (other.writes || operand.writes)) return true;
  return false;
}

// What one of the two writes and the other touches is the same elements: as one op, it reads each
// before it writes it.
bool touch_alike(const Graph& graph, const Op& maker, const Op& reader) {
  for (const Operand& a : maker.operands)
    for (const Operand& b : reader.operands)
      if (a.memory == b.memory && (a.writes || b.writes) &&
          !same_elements(graph.desc_of(a), graph.desc_of(b)))
        return false;
  return true;
}

bool try_to_fuse(Round& round, OpId first, OpId second) {
  Graph& graph = round.graph;
  const Op& maker = round.op(first);
  const Op& reader = round.op(second);
  if (!is_update(maker) && !is_update(reader)) return false;
  if (!touch_alike(graph, maker, reader) || is_in_the_way(graph, first, second)) return false;

  std::vector<bool> keep;
  for (const Operand& operand : maker.operands) {
    if (!operand.writes) continue;
    const bool is_private = graph.memories[operand.memory.index].role == Role::kIntermediate &&
                            round.uses.sole_writer(operand.memory) == first &&
                            round.uses.sole_reader(operand.memory) == second;
    keep.push_back(!is_private && !writes(reader, operand.memory));
  }
  const size_t reader_outputs = attributes_of<Chain>(reader)->outputs.size();
  ChainBuilder builder(graph, graph.desc_of(reader.operands.back()).sizes);
  if (!builder.add(maker, keep) || !builder.add(reader, std::vector<bool>(reader_outputs, true)))
    return false;
  if (builder.steps() > kMostSteps || builder.operands() > kMostOperands) return false;
  Op fused = maker;
  fused.name = joined_name(maker, reader);
  builder.write(fused);
  round.erase(first);
  round.replace(second, std::move(fused));
  return true;
}

// The last op before `reader` that writes a memory.
OpId last_writer(const Round& round, MemoryId memory, OpId reader) {
  OpId last;
  for (OpId writer : round.uses.writers(memory))
    if (writer < reader) last = writer;
  return last;
}

void visit(Round& round, OpId id) {
  if (attributes_of<Chain>(round.op(id)) == nullptr) return;
  for (const Operand& operand : round.op(id).operands) {
    if (!operand.reads) continue;
    const OpId maker = last_writer(round, operand.memory, id);
    if (!maker.valid() || round.touched(maker)) continue;
    if (attributes_of<Chain>(round.op(maker)) == nullptr) continue;
    if (try_to_fuse(round, maker, id)) return;
  }
}

}  // namespace

void fuse_updates(Graph& graph) {
  sweep_until_unchanged(graph, visit);
}

}  // namespace nimble
