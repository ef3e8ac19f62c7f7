#include "nimble/passes/fuse_subsampling.h"

#include <array>
#include <utility>

#include "nimble/passes/remove_dead_ops.h"
#include "nimble/passes/round.h"

namespace nimble {
namespace {

constexpr std::array<int64_t, 2> kZeros = {0, 0};
constexpr std::array<int64_t, 2> kOnes = {1, 1};

bool only_leaves_out(const Pool& pool) {
  return pool.kernel == kOnes && pool.padding == kZeros && pool.far_padding == kZeros &&
         pool.divisor <= 1 && pool.epilogue == Epilogue{};
}

void visit(Round& round, OpId id) {
  Graph& graph = round.graph;
  const auto* convolution = attributes_of<Convolution>(round.op(id));
  if (convolution == nullptr || convolution->padding != kZeros || convolution->scale_input) return;
  const TensorDesc& weight = graph.desc_of(round.op(id).operands[1]);
  if (weight.sizes[2] != 1 || weight.sizes[3] != 1) return;
  const Operand& input = round.op(id).operands[0];
  const OpId maker = round.maker(input);
  if (!maker.valid()) return;
  const auto* pool = attributes_of<Pool>(round.op(maker));
  if (pool == nullptr || !only_leaves_out(*pool)) return;
  const Operand& source = round.op(maker).operands[0];
  const TensorDesc& pooled = graph.desc_of(round.op(maker).operands.back());
  const TensorDesc& seen = graph.desc_of(input);
  if (seen.sizes != pooled.sizes || !same_elements(seen, pooled)) return;
  const TensorDesc& output = graph.desc_of(round.op(id).operands.back());
  for (size_t d : {2, 3})  // beyond the pooled there are zeros, but pixels in the source
    if ((output.sizes[d] - 1) * convolution->stride[d - 2] >= pooled.sizes[d]) return;
  if (!round.uses.is_stable(source.memory)) return;

  Convolution strided = *convolution;
  for (size_t d : {0, 1}) strided.stride[d] *= pool->stride[d];
  Op op = round.op(id);
  op.attributes = strided;
  op.operands[0] = reading(source.memory, source.view);
  round.replace(id, std::move(op));
}

}  // namespace

void fuse_subsampling(Graph& graph) {
  sweep_until_unchanged(graph, visit);
  remove_dead_ops(graph);
}

}  // namespace nimble
