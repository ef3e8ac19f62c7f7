#include "nimble/passes/fuse_epilogues.h"

#include <algorithm>
#include <utility>

#include "nimble/passes/round.h"

namespace nimble {
namespace {

Epilogue* epilogue_of(OpAttributes& attributes) {
  if (auto* convolution = std::get_if<Convolution>(&attributes)) return &convolution->epilogue;
  if (auto* both = std::get_if<SeparableConvolution>(&attributes)) return &both->pointwise.epilogue;
  if (auto* matmul = std::get_if<MatMul>(&attributes)) return &matmul->epilogue;
  if (auto* pool = std::get_if<Pool>(&attributes)) return &pool->epilogue;
  return nullptr;
}

bool is_none(const Activation& activation) {
  return activation.kind == ActivationKind::kNone;
}

// Where the op has room for one more activation behind all it does; null: nowhere.
Activation* free_activation(OpAttributes& attributes) {
  if (Epilogue* epilogue = epilogue_of(attributes)) {
    if (!is_none(epilogue->last)) return nullptr;
    if (epilogue->add) return &epilogue->last;
    return is_none(epilogue->first) ? &epilogue->first : nullptr;
  }
  if (auto* norm = std::get_if<LayerNorm>(&attributes))
    return is_none(norm->activation) ? &norm->activation : nullptr;
  if (auto* norm = std::get_if<GroupNorm>(&attributes))
    return is_none(norm->activation) ? &norm->activation : nullptr;
  return nullptr;
}

bool can_add(OpAttributes& attributes) {
  const Epilogue* epilogue = epilogue_of(attributes);
  return epilogue != nullptr && !epilogue->add && is_none(epilogue->last);
}

// Reads every element once: not expanded.
bool is_plain(const TensorDesc& desc) {
  return !desc.may_overlap_itself() && !desc.conjugate && !desc.negative;
}

// The maker of `operand`, if it could do more on its own result before it leaves it.
OpId private_maker_of_all(const Round& round, const Operand& operand, OpId reader) {
  const OpId maker = round.private_maker(operand, reader);
  if (!maker.valid()) return maker;
  const Graph& graph = round.graph;
  const TensorDesc& made = graph.desc_of(round.op(maker).operands.back());
  return same_elements(made, graph.desc_of(operand)) ? maker : OpId();
}

// Lets `maker` do what the chain does: with `attributes`, and `addend` read in its last place.
bool fuse(Round& round, OpId maker, OpId chain, OpAttributes attributes, const Operand* addend) {
  Graph& graph = round.graph;
  const std::vector<int64_t> sizes = graph.desc_of(round.op(maker).operands.back()).sizes;
  const Operand& output = round.op(chain).operands.back();
  const auto result_desc = reshaped(graph.desc_of(output), sizes);
  if (!result_desc) return false;
  std::optional<TensorDesc> addend_desc;
  if (addend != nullptr) {
    addend_desc = reshaped(graph.desc_of(*addend), sizes);
    if (!addend_desc) return false;
  }
  const OpId place = round.place_for_both(maker, chain);
  if (!place.valid()) return false;

  Op fused = round.op(maker);
  fused.name = joined_name(fused, round.op(chain));
  fused.attributes = std::move(attributes);
  fused.operands.pop_back();
  if (addend_desc) fused.operands.push_back(reading(addend->memory, add_view(graph, *addend_desc)));
  fused.operands.push_back(writing(output.memory, add_view(graph, *result_desc)));
  round.erase(place == maker ? chain : maker);
  round.replace(place, std::move(fused));
  return true;
}

void fuse_activation(Round& round, OpId id, const Chain& chain) {
  const OpId maker = private_maker_of_all(round, round.op(id).operands[0], id);
  if (!maker.valid()) return;
  OpAttributes attributes = *round.op(maker).attributes;
  Activation* free = free_activation(attributes);
  if (free == nullptr) return;
  *free = chain.steps[0].activation;
  fuse(round, maker, id, std::move(attributes), nullptr);
}

// Pools are cheap: an addition is better off in what takes longer anyway.
bool is_expensive(const Op& op) {
  return attributes_of<Pool>(op) == nullptr;
}

void fuse_addition(Round& round, OpId id) {
  const Op& op = round.op(id);
  struct Candidate {
    OpId maker;
    const Operand* addend;
  };
  std::vector<Candidate> candidates;
  for (size_t i : {0, 1}) {
    const Operand& summand = op.operands[i];
    const Operand& other = op.operands[1 - i];
    // What is about to be fused with something else may be the better place: wait for it.
    const OpId writer = round.uses.sole_writer(summand.memory);
    if (writer.valid() && round.touched(writer)) return;
    if (summand.memory == other.memory || !is_plain(round.graph.desc_of(other))) continue;
    const OpId maker = private_maker_of_all(round, summand, id);
    if (!maker.valid()) continue;
    OpAttributes attributes = *round.op(maker).attributes;
    if (can_add(attributes)) candidates.push_back({maker, &other});
  }
  std::sort(candidates.begin(), candidates.end(), [&](const Candidate& a, const Candidate& b) {
    const bool a_expensive = is_expensive(round.op(a.maker));
    const bool b_expensive = is_expensive(round.op(b.maker));
    return a_expensive != b_expensive ? a_expensive : a.maker > b.maker;
  });
  for (const Candidate& candidate : candidates) {
    OpAttributes attributes = *round.op(candidate.maker).attributes;
    epilogue_of(attributes)->add = true;
    if (fuse(round, candidate.maker, id, std::move(attributes), candidate.addend)) return;
  }
}

}  // namespace

void fuse_epilogues(Graph& graph) {
  sweep_until_unchanged(graph, [](Round& round, OpId id) {
    const auto* found = attributes_of<Chain>(round.op(id));
    if (found == nullptr || found->steps.size() != 1 || found->outputs.size() != 1) return;
    const Chain chain = *found;  // fusing replaces it
    const ChainStep& step = chain.steps[0];
    if (step.op == ChainOp::kActivation && chain.inputs == 1) fuse_activation(round, id, chain);
    if (step.op == ChainOp::kAdd && chain.inputs == 2 && step.x != step.y) fuse_addition(round, id);
  });
}

}  // namespace nimble
