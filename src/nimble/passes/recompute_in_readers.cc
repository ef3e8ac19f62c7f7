#include "nimble/passes/recompute_in_readers.h"

#include <algorithm>
#include <utility>

#include "nimble/passes/chain_builder.h"
#include "nimble/passes/partial_chain.h"
#include "nimble/passes/round.h"

namespace nimble {
namespace {

// About as fast as to read a number.
bool is_cheap(const ChainStep& step) {
  const bool activates = step.op == ChainOp::kActivation || step.op == ChainOp::kActivationGradient;
  const bool clamps = step.activation.kind == ActivationKind::kRelu ||
                      step.activation.kind == ActivationKind::kClamp;
  return is_one_instruction(step) || (activates && clamps);
}

constexpr size_t kMostOperands = 10;
constexpr size_t kMostSteps = 16;

bool reads(const Op& op, MemoryId memory) {
  return std::any_of(op.operands.begin(), op.operands.end(), [&](const Operand& operand) {
    return operand.reads && operand.memory == memory;
  });
}

class Recomputation {
 public:
  Recomputation(Round& round, OpId reader) : round_(round), graph_(round.graph), reader_(reader) {}

  void run() {
    const Op& reader = round_.op(reader_);
    if (chain_of(reader) == nullptr) return;
    for (size_t i = 0; i < reader.operands.size(); ++i)
      if (reader.operands[i].reads && try_operand(reader.operands[i])) return;
  }

 private:
  bool try_operand(Operand operand) {  // a copy: the reader is replaced
    const Op& reader = round_.op(reader_);
    const OpId maker_id = round_.maker(operand);
    if (!maker_id.valid() || chain_of(round_.op(maker_id)) == nullptr) return false;
    const Op& maker = round_.op(maker_id);
    if (graph_.memories[operand.memory.index].is_output || !reads_alike(graph_, maker, reader))
      return false;
    const std::optional<size_t> output = output_in(maker, operand.memory);
    if (!output) return false;
    const std::optional<Op> part = maker_of_output(maker, *output, is_cheap);
    if (!part || !is_worth_it(*part, operand)) return false;

    ChainBuilder builder(graph_, graph_.desc_of(reader.operands.front()).sizes);
    if (!builder.add(*part, {false}) ||
        !builder.add(reader, std::vector<bool>(chain_of(reader)->outputs.size(), true)))
      return false;
    if (builder.steps() > kMostSteps || builder.operands() > kMostOperands) return false;
    Op joined = reader;
    builder.write(joined);
    round_.replace(reader_, std::move(joined));
    const auto& readers = round_.uses.readers(operand.memory);
    if (readers.size() == 1) drop_output(maker_id, *output);
    return true;
  }

  bool is_worth_it(const Op& part, const Operand& made) const {
    int64_t more = 0;  // images that the reader does not read yet
    for (const Operand& input : part.operands) {
      if (!input.reads) continue;
      if (!round_.uses.is_stable(input.memory)) return false;
      if (!is_image_beside(graph_.desc_of(input), graph_.desc_of(made))) continue;
      more += reads(round_.op(reader_), input.memory) ? 0 : 1;
    }
    return more == 0 || (more == 1 && round_.uses.sole_reader(made.memory) == reader_);
  }

  void drop_output(OpId maker_id, size_t output) {
    Op maker = round_.op(maker_id);
    const Chain& chain = *chain_of(maker);
    if (attributes_of<Chain>(maker) && chain.outputs.size() == 1) {
      round_.erase(maker_id);
      return;
    }
    const auto at = static_cast<std::ptrdiff_t>(static_cast<size_t>(chain.inputs) + output);
    Chain less = chain;
    less.outputs.erase(less.outputs.begin() + static_cast<std::ptrdiff_t>(output));
    maker.operands.erase(maker.operands.begin() + at);
    if (const auto* sums = attributes_of<ChainSums>(maker))
      maker.attributes = ChainSums{std::move(less), sums->sums};
    else
      maker.attributes = std::move(less);
    round_.replace(maker_id, std::move(maker));
  }

  Round& round_;
  Graph& graph_;
  OpId reader_;
};

}  // namespace

void recompute_in_readers(Graph& graph) {
  sweep_until_unchanged(graph, [](Round& round, OpId id) { Recomputation(round, id).run(); });
}

}  // namespace nimble
