#include "nimble/passes/use_clamped_in_gradients.h"

#include <algorithm>

#include "nimble/graph/relink.h"
#include "nimble/passes/rewrite.h"

namespace nimble {
namespace {

// The step of a chain that is that step alone.
const ChainStep* only_step(const Op& op, ChainOp kind) {
  const auto* chain = attributes_of<Chain>(op);
  return chain != nullptr && chain->steps.size() == 1 && chain->steps[0].op == kind
             ? chain->steps.data()
             : nullptr;
}

const ChainStep* clamp_gradient(const Op& op) {
  const ChainStep* step = only_step(op, ChainOp::kActivationGradient);
  return step != nullptr && step->activation.kind == ActivationKind::kClamp ? step : nullptr;
}

class Clamps {
 public:
  explicit Clamps(Graph& graph) : graph_(graph), uses_(graph) {}

  bool run() {
    bool changed = false;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const ChainStep* gradient = clamp_gradient(graph_.ops[i]);
      if (gradient == nullptr) continue;
      Operand& input = graph_.ops[i].operands[gradient->y];
      const OpId clamp = clamp_of(input, gradient->activation, OpId(i));
      if (!clamp.valid() || is_needed_behind(input.memory, clamp)) continue;
      const Operand& result = graph_.ops[clamp.index].operands.back();
      input = reading(result.memory, result.view);
      changed = true;
    }
    return changed;
  }

 private:
  // The op before `reader` that clamps just this; none if there is none, or its result changes.
  OpId clamp_of(const Operand& input, const Activation& activation, OpId reader) const {
    if (!uses_.is_stable(input.memory)) return {};
    for (OpId id : uses_.readers(input.memory)) {
      const Op& op = graph_.ops[id.index];
      const ChainStep* step = only_step(op, ChainOp::kActivation);
      if (id < reader && step != nullptr && step->activation == activation &&
          graph_.desc_of(op.operands[0]) == graph_.desc_of(input) &&
          uses_.sole_writer(op.operands.back().memory) == id)
        return id;
    }
    return {};
  }

  // By others than gradients of clamps: then the result would have to be kept beside it.
  bool is_needed_behind(MemoryId memory, OpId clamp) const {
    const auto& readers = uses_.readers(memory);
    return graph_.memories[memory.index].is_output ||
           std::any_of(readers.begin(), readers.end(), [&](OpId reader) {
             return clamp < reader && clamp_gradient(graph_.ops[reader.index]) == nullptr;
           });
  }

  Graph& graph_;
  const Uses uses_;
};

}  // namespace

void use_clamped_in_gradients(Graph& graph) {
  if (Clamps(graph).run()) relink(graph);
}

}  // namespace nimble
