#include "nimble/passes/fuse_separable.h"

#include <utility>

#include "nimble/passes/images.h"
#include "nimble/passes/round.h"

namespace nimble {
namespace {

bool is_depthwise(const Graph& graph, const Op& op) {
  const auto* convolution = attributes_of<Convolution>(op);
  return convolution != nullptr && convolution->constant_weight && !convolution->epilogue.add &&
         !convolution->scale_input &&
         convolution->groups == graph.desc_of(op.operands[0]).sizes[1] &&
         convolution->groups == graph.desc_of(op.operands.back()).sizes[1];
}

void visit(Round& round, OpId pointwise) {
  const Graph& graph = round.graph;
  if (!is_pointwise(graph, round.op(pointwise)) ||
      !attributes_of<Convolution>(round.op(pointwise))->constant_weight)
    return;
  const Operand& middle = round.op(pointwise).operands[0];
  const OpId depthwise = round.private_maker(middle, pointwise);
  if (!depthwise.valid() || !is_depthwise(graph, round.op(depthwise))) return;
  const auto& operands = round.op(pointwise).operands;
  for (size_t i = 1; i < operands.size(); ++i)
    if (operands[i].memory == middle.memory) return;
  const TensorDesc& made = graph.desc_of(round.op(depthwise).operands.back());
  const TensorDesc& seen = graph.desc_of(middle);
  if (made.sizes != seen.sizes || !same_elements(made, seen)) return;
  const OpId place = round.place_for_both(depthwise, pointwise);
  if (!place.valid()) return;

  Op both = round.op(depthwise);
  both.name = joined_name(both, round.op(pointwise));
  both.attributes = SeparableConvolution{*attributes_of<Convolution>(round.op(depthwise)),
                                         *attributes_of<Convolution>(round.op(pointwise))};
  both.operands.pop_back();
  both.operands.insert(both.operands.end(), operands.begin() + 1, operands.end());
  round.erase(place == depthwise ? pointwise : depthwise);
  round.replace(place, std::move(both));
}

}  // namespace

void fuse_separable(Graph& graph) {
  sweep_until_unchanged(graph, visit);
}

}  // namespace nimble
