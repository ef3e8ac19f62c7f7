#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "nimble/passes/rewrite.h"

namespace nimble {

// Builds one chain out of several, of which the last may be ChainSums, and so is all of it then.
// Operands are seen with the sizes given.
class ChainBuilder {
 public:
  ChainBuilder(Graph& graph, std::vector<int64_t> sizes)
      : graph_(graph), sizes_(std::move(sizes)) {}

  // False if an operand cannot be seen with these sizes. Outputs for which `keep` is false are left
  // out. What the chains before it made is taken from registers.
  bool add(const Op& op, const std::vector<bool>& keep) {
    const Chain& chain = *chain_of(op);
    std::vector<int> registers;  // of this chain, in terms of ours: inputs are >= 0, steps < 0
    for (int i = 0; i < chain.inputs; ++i) {
      const auto desc = reshaped(graph_.desc_of(op.operands[i]), sizes_);
      if (!desc) return false;
      registers.push_back(source(op.operands[i].memory, *desc));
    }
    for (ChainStep step : chain.steps) {
      for (int* r : {&step.x, &step.y, &step.z})
        if (*r >= 0) *r = registers[static_cast<size_t>(*r)];
      steps_.push_back(step);
      registers.push_back(step_register(steps_.size() - 1));
    }
    for (size_t i = 0; i < chain.outputs.size(); ++i) {
      const Operand& output = op.operands[static_cast<size_t>(chain.inputs) + i];
      const auto desc = reshaped(graph_.desc_of(output), sizes_);
      if (!desc) return false;
      results_.push_back(
          {output.memory, *desc, registers[static_cast<size_t>(chain.outputs[i])], keep[i]});
    }
    if (const auto* sums = attributes_of<ChainSums>(op)) {
      const size_t first = static_cast<size_t>(chain.inputs) + chain.outputs.size();
      for (size_t i = 0; i < sums->sums.size(); ++i)
        sums_.emplace_back(op.operands[first + i], registers[static_cast<size_t>(sums->sums[i])]);
    }
    return true;
  }

  size_t steps() const { return steps_.size(); }
  size_t operands() const { return inputs_.size() + kept_results(); }

  // The chain and its operands, in place of those of `op`.
  void write(Op& op) {
    const int inputs = static_cast<int>(inputs_.size());
    const auto resolved = [&](int r) { return is_step(r) ? inputs + step_index(r) : r; };
    Chain chain;
    chain.inputs = inputs;
    for (ChainStep step : steps_) {
      step.x = resolved(step.x);
      if (step.y != -1) step.y = resolved(step.y);
      if (step.z != -1) step.z = resolved(step.z);
      chain.steps.push_back(step);
    }
    op.operands.clear();
    for (const auto& [memory, desc] : inputs_)
      op.operands.push_back(reading(memory, add_view(graph_, desc)));
    for (const Result& result : results_) {
      if (!result.kept) continue;
      op.operands.push_back(writing(result.memory, add_view(graph_, result.desc)));
      chain.outputs.push_back(resolved(result.value));
    }
    if (sums_.empty()) {
      op.attributes = std::move(chain);
      return;
    }
    ChainSums sums{.chain = std::move(chain), .sums = {}};
    for (const auto& [operand, value] : sums_) {
      op.operands.push_back(operand);
      sums.sums.push_back(resolved(value));
    }
    op.attributes = std::move(sums);
  }

 private:
  struct Result {
    MemoryId memory;
    TensorDesc desc;
    int value;
    bool kept;
  };

  // While it is not known how many inputs there will be, steps have numbers of their own.
  static int step_register(size_t step) { return -2 - static_cast<int>(step); }
  static bool is_step(int r) { return r <= -2; }
  static int step_index(int r) { return -2 - r; }

  int source(MemoryId memory, const TensorDesc& desc) {
    for (const Result& result : results_)
      if (result.memory == memory) return result.value;
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].first == memory && inputs_[i].second == desc) return static_cast<int>(i);
    inputs_.emplace_back(memory, desc);
    return static_cast<int>(inputs_.size()) - 1;
  }

  size_t kept_results() const {
    return static_cast<size_t>(std::count_if(results_.begin(), results_.end(),
                                             [](const Result& result) { return result.kept; }));
  }

  Graph& graph_;
  std::vector<int64_t> sizes_;
  std::vector<std::pair<MemoryId, TensorDesc>> inputs_;
  std::vector<ChainStep> steps_;
  std::vector<Result> results_;
  std::vector<std::pair<Operand, int>> sums_;  // where they go, and the register
};

// Whether all that `reader` reads of what `maker` leaves is what `maker` wrote, element by element.
inline bool reads_alike(const Graph& graph, const Op& maker, const Op& reader) {
  for (const Operand& read : reader.operands) {
    for (const Operand& written : maker.operands) {
      if (!written.writes || written.memory != read.memory) continue;
      if (!read.reads || !same_elements(graph.desc_of(written), graph.desc_of(read))) return false;
    }
  }
  return true;
}

}  // namespace nimble
