#include "nimble/passes/fuse_input_scale.h"

#include <utility>

#include "nimble/passes/images.h"
#include "nimble/passes/round.h"

namespace nimble {
namespace {

bool is_product(const Op& op) {
  const auto* chain = attributes_of<Chain>(op);
  return chain != nullptr && chain->inputs == 2 && chain->steps.size() == 1 &&
         chain->outputs.size() == 1 && chain->steps[0].op == ChainOp::kMul &&
         chain->steps[0].x != chain->steps[0].y;
}

// One number for all pixels of a channel, with strides that say so; none if there are more.
std::optional<TensorDesc> as_scale(TensorDesc desc) {
  if (desc.sizes.size() != 4) return std::nullopt;
  for (size_t d : {2, 3}) {
    if (desc.sizes[d] != 1 && desc.strides[d] != 0) return std::nullopt;
    desc.strides[d] = 0;
  }
  return desc;
}

struct ScaledImage {
  Operand image;
  Operand scale;
  TensorDesc factors;
};

// Which operand is the image and which the scale; none if they are something else.
std::optional<ScaledImage> scaled_image(const Graph& graph, const Op& product) {
  for (size_t i : {1, 0}) {
    const Operand& scale = product.operands[i];
    const Operand& image = product.operands[1 - i];
    auto factors = as_scale(graph.desc_of(scale));
    if (!factors || graph.desc_of(image).may_overlap_itself()) continue;
    return ScaledImage{image, scale, std::move(*factors)};
  }
  return std::nullopt;
}

void visit(Round& round, OpId id) {
  Graph& graph = round.graph;
  const Op& product = round.op(id);
  if (!is_product(product)) return;
  const Operand& result = product.operands[2];
  const OpId reader = round.uses.sole_reader(result.memory);
  if (round.uses.sole_writer(result.memory) != id || round.touched(reader) ||
      !is_pointwise(graph, round.op(reader)))
    return;
  const auto& operands = round.op(reader).operands;
  for (size_t i = 1; i < operands.size(); ++i)
    if (operands[i].memory == result.memory) return;
  const TensorDesc& seen = graph.desc_of(operands[0]);
  if (seen.sizes != graph.desc_of(result).sizes || !same_elements(seen, graph.desc_of(result)))
    return;
  const auto scaled = scaled_image(graph, product);
  if (!scaled || !round.uses.is_stable(scaled->image.memory) ||
      !round.uses.is_stable(scaled->scale.memory))
    return;

  Op op = round.op(reader);
  op.name = joined_name(product, op);
  Convolution convolution = *attributes_of<Convolution>(op);
  if (!convolution.constant_weight) return;
  convolution.scale_input = true;
  op.attributes = convolution;
  op.operands[0] = reading(scaled->image.memory, scaled->image.view);
  op.operands.insert(op.operands.begin() + static_cast<int64_t>(convolution.scale_operand()),
                     reading(scaled->scale.memory, add_view(graph, scaled->factors)));
  round.replace(reader, std::move(op));
  round.erase(id);
}

}  // namespace

void fuse_input_scale(Graph& graph) {
  sweep_until_unchanged(graph, visit);
}

}  // namespace nimble
