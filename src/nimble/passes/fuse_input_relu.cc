#include "nimble/passes/fuse_input_relu.h"

#include <utility>

#include "nimble/passes/round.h"

namespace nimble {
namespace {

bool is_relu(const Op& op) {
  const auto* chain = attributes_of<Chain>(op);
  return chain != nullptr && chain->inputs == 1 && chain->steps.size() == 1 &&
         chain->outputs.size() == 1 && chain->steps[0].op == ChainOp::kActivation &&
         chain->steps[0].activation == Activation{ActivationKind::kRelu};
}

// The reader as it is without the relu in front of it; none if it cannot do that itself.
std::optional<Op> with_input_relu(Graph& graph, const Op& relu, const Op& reader) {
  const auto* convolution = attributes_of<Convolution>(reader);
  const Operand& source = relu.operands[0];
  const Operand& result = relu.operands[1];
  if (convolution == nullptr || reader.operands[0].memory != result.memory) return std::nullopt;
  for (size_t i = 1; i < reader.operands.size(); ++i)
    if (reader.operands[i].memory == result.memory) return std::nullopt;
  if (convolution->groups != graph.desc_of(reader.operands[0]).sizes[1] || convolution->scale_input)
    return std::nullopt;
  const auto view =
      seen_through(graph.desc_of(reader.operands[0]), graph.desc_of(result), graph.desc_of(source));
  if (!view) return std::nullopt;
  Convolution changed = *convolution;
  changed.relu_input = true;
  Op op = reader;
  op.attributes = changed;
  op.operands[0] = reading(source.memory, add_view(graph, *view));
  return op;
}

void visit(Round& round, OpId id) {
  const Op& relu = round.op(id);
  if (!is_relu(relu)) return;
  const MemoryId result = relu.operands[1].memory;
  if (round.graph.memories[result.index].is_output || round.uses.sole_writer(result) != id ||
      !round.uses.is_stable(relu.operands[0].memory))
    return;
  std::vector<std::pair<OpId, Op>> changed;
  for (OpId reader : round.uses.readers(result)) {
    if (round.touched(reader)) return;
    auto op = with_input_relu(round.graph, relu, round.op(reader));
    if (!op) return;
    changed.emplace_back(reader, std::move(*op));
  }
  if (changed.empty()) return;
  for (auto& [reader, op] : changed) round.replace(reader, std::move(op));
  round.erase(id);
}

}  // namespace

void fuse_input_relu(Graph& graph) {
  sweep_until_unchanged(graph, visit);
}

}  // namespace nimble
