#include "nimble/passes/recompute_late.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "nimble/passes/partial_chain.h"
#include "nimble/passes/round.h"
#include "nimble/passes/tuning.h"

namespace nimble {
namespace {

// Not what takes longer than to read the result from memory.
bool is_allowed(const ChainStep& step) {
  return is_one_instruction(step) ||
         (step.op == ChainOp::kActivation && step.activation.kind != ActivationKind::kGeluErf);
}

// How many bytes ops have written up to each of them, itself included.
std::vector<int64_t> written_up_to(const Graph& graph) {
  std::vector<int64_t> sums;
  int64_t sum = 0;
  for (const Op& op : graph.ops) {
    for (const Operand& operand : op.operands)
      if (operand.writes)
        sum += graph.desc_of(operand).numel() * graph.desc_of(operand).dtype.bytes;
    sums.push_back(sum);
  }
  return sums;
}

class LateReaders {
 public:
  LateReaders(Round& round, const std::vector<int64_t>& written)
      : round_(round), graph_(round.graph), written_(written) {}

  void visit(OpId maker) {
    const auto* chain = attributes_of<Chain>(round_.op(maker));
    if (chain == nullptr) return;
    for (size_t i = 0; i < chain->outputs.size(); ++i)
      if (try_output(maker, static_cast<size_t>(chain->inputs) + i, i)) return;
  }

 private:
  bool try_output(OpId maker, size_t operand, size_t output) {
    const MemoryId memory = round_.op(maker).operands[operand].memory;
    if (graph_.memories[memory.index].is_output || round_.uses.sole_writer(memory) != maker)
      return false;
    const std::vector<OpId>& readers = round_.uses.readers(memory);
    const auto late = first_late(readers);
    if (late == readers.end() || late == readers.begin()) return false;
    for (auto reader = late; reader != readers.end(); ++reader)
      if (round_.touched(*reader) || !round_.op(*reader).attributes) return false;
    std::optional<Op> again = maker_of_output(round_.op(maker), output, is_allowed);
    if (!again || !is_of_one_image_read_behind(*again, *late)) return false;

    const MemoryId copy = add_memory(graph_, graph_.memories[memory.index].bytes);
    again->operands.back().memory = copy;
    again->group = round_.new_group();
    round_.insert_before(*late, std::move(*again));
    for (auto reader = late; reader != readers.end(); ++reader) {
      Op op = round_.op(*reader);
      for (Operand& each : op.operands)
        if (each.memory == memory) each.memory = copy;
      round_.replace(*reader, std::move(op));
    }
    return true;
  }

  // Those who read it before are near to each other and to the maker.
  std::vector<OpId>::const_iterator first_late(const std::vector<OpId>& readers) const {
    for (auto reader = readers.begin(); reader != readers.end(); ++reader)
      if (reader != readers.begin() &&
          written_[reader->index] - written_[(reader - 1)->index] > kForgottenBytes)
        return reader;
    return readers.end();
  }

  bool is_of_one_image_read_behind(const Op& op, OpId late) const {
    int images = 0;
    for (const Operand& input : op.operands) {
      if (!input.reads) continue;
      if (!round_.uses.is_stable(input.memory)) return false;
      if (!is_image_beside(graph_.desc_of(input), graph_.desc_of(op.operands.back()))) continue;
      const std::vector<OpId>& readers = round_.uses.readers(input.memory);
      if (++images > 1 || readers.empty() || readers.back() < late) return false;
    }
    return images == 1;
  }

  Round& round_;
  Graph& graph_;
  const std::vector<int64_t>& written_;
};

}  // namespace

void recompute_late(Graph& graph) {
  std::vector<int64_t> written;
  sweep_until_unchanged(graph, [&](Round& round, OpId id) {
    if (id.index == 0) written = written_up_to(graph);  // a sweep begins
    LateReaders(round, written).visit(id);
  });
}

}  // namespace nimble
