#include "nimble/passes/distribute_over_concatenation.h"

#include <utility>

#include "nimble/passes/round.h"
#include "nimble/passes/slices.h"

namespace nimble {
namespace {

// Whether the op could do the chain's work on its result before it leaves it.
bool can_do_more(const Op& op) {
  return attributes_of<Convolution>(op) != nullptr || attributes_of<MatMul>(op) != nullptr ||
         attributes_of<Pool>(op) != nullptr || attributes_of<Chain>(op) != nullptr;
}

// Whether at least half of a concatenation is written by ops that could do more. The others would
// have to be copied into it: doing something on the way costs nothing. But a concatenation of what
// others read as well may be laid out once for all of them, and is better left alone.
bool pays(const Round& round, OpId concatenation) {
  int64_t can = 0;
  int64_t all = 0;
  const auto& operands = round.op(concatenation).operands;
  for (size_t i = 0; i + 1 < operands.size(); ++i) {
    const int64_t elements = round.graph.desc_of(operands[i]).numel();
    all += elements;
    const OpId maker = round.private_maker(operands[i], concatenation);
    if (maker.valid() && can_do_more(round.op(maker))) can += elements;
  }
  return 2 * can >= all;
}

// The operand of the chain that is the whole concatenation; none if the chain needs anything else
// that is no constant.
std::optional<size_t> concatenated_input(const Round& round, OpId chain) {
  const auto& operands = round.op(chain).operands;
  std::optional<size_t> found;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].reads || round.uses.is_constant(operands[i].memory)) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

void visit(Round& round, OpId id) {
  Graph& graph = round.graph;
  const auto* chain = attributes_of<Chain>(round.op(id));
  if (chain == nullptr || chain->outputs.size() != 1) return;
  const auto input = concatenated_input(round, id);
  if (!input) return;
  const OpId maker = round.private_maker(round.op(id).operands[*input], id);
  if (!maker.valid()) return;
  const auto* concatenation = attributes_of<Concatenation>(round.op(maker));
  if (concatenation == nullptr || !pays(round, maker)) return;
  const auto& parts = round.op(maker).operands;
  const TensorDesc& whole = graph.desc_of(parts.back());
  const TensorDesc& seen = graph.desc_of(round.op(id).operands[*input]);
  if (whole.sizes != seen.sizes || !same_elements(whole, seen)) return;
  for (size_t i = 0; i + 1 < parts.size(); ++i)  // they are read where the chain stands
    if (!round.uses.is_stable(parts[i].memory)) return;

  const auto dim = static_cast<size_t>(concatenation->dim);
  Op joined = round.op(maker);
  joined.operands.back() = round.op(id).operands.back();
  int64_t start = 0;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const TensorDesc part = graph.desc_of(parts[i]);
    Op piece = round.op(id);
    piece.group = round.new_group();
    for (size_t k = 0; k < piece.operands.size(); ++k) {
      Operand& operand = piece.operands[k];
      if (k == *input) {
        operand = reading(parts[i].memory, parts[i].view);
      } else if (operand.reads) {
        const TensorDesc desc = slice(graph.desc_of(operand), dim, start, part.sizes[dim]);
        operand = reading(operand.memory, add_view(graph, desc));
      } else {
        const TensorDesc desc = row_major(part.dtype, part.sizes);
        operand = writing(add_memory(graph, desc.end_byte()), add_view(graph, desc));
        joined.operands[i] = reading(operand.memory, operand.view);
      }
    }
    start += part.sizes[dim];
    round.insert_before(id, std::move(piece));
  }
  round.erase(maker);
  round.replace(id, std::move(joined));
}

}  // namespace

void distribute_over_concatenation(Graph& graph) {
  sweep_until_unchanged(graph, visit);
}

}  // namespace nimble
