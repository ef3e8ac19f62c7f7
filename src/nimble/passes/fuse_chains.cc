#include "nimble/passes/fuse_chains.h"

#include <algorithm>

#include "nimble/passes/chain_builder.h"
#include "nimble/passes/round.h"

namespace nimble {
namespace {

constexpr size_t kMostOperands = 8;
constexpr size_t kMostSteps = 16;

bool try_to_fuse(Round& round, OpId first, OpId second) {
  Graph& graph = round.graph;
  const Op& maker = round.op(first);
  const Op& reader = round.op(second);
  if (!reads_alike(graph, maker, reader)) return false;

  std::vector<bool> keep;
  for (const Operand& operand : maker.operands) {
    if (!operand.writes) continue;
    if (round.uses.sole_writer(operand.memory) != first) return false;
    keep.push_back(round.uses.sole_reader(operand.memory) != second);
  }
  const bool shared = std::find(keep.begin(), keep.end(), true) != keep.end();
  const OpId place = round.place_for_both(first, second, shared);
  if (!place.valid()) return false;

  const size_t reader_outputs = chain_of(reader)->outputs.size();
  for (const Op* shape : {&reader, &maker}) {
    if (attributes_of<ChainSums>(reader) && shape == &maker) continue;  // rows and channels stay
    ChainBuilder builder(graph, graph.desc_of(shape->operands.front()).sizes);
    if (!builder.add(maker, keep) || !builder.add(reader, std::vector<bool>(reader_outputs, true)))
      continue;
    if (builder.steps() > kMostSteps || builder.operands() > kMostOperands) return false;
    Op fused = maker;
    fused.name = joined_name(maker, reader);
    builder.write(fused);
    round.erase(place == first ? second : first);
    round.replace(place, std::move(fused));
    return true;
  }
  return false;
}

void visit(Round& round, OpId id) {
  if (chain_of(round.op(id)) == nullptr) return;
  for (const Operand& operand : round.op(id).operands) {
    if (!operand.reads) continue;
    const OpId maker = round.maker(operand);
    if (!maker.valid() || attributes_of<Chain>(round.op(maker)) == nullptr) continue;
    if (try_to_fuse(round, maker, id)) return;
  }
}

}  // namespace

void fuse_chains(Graph& graph) {
  sweep_until_unchanged(graph, visit);
}

}  // namespace nimble
