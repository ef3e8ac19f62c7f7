#include "nimble/torch/plan.h"


#include "nimble/graph/build.h"
#include "nimble/torch/intra_op.h"
#include "nimble/torch/out_variant.h"
#include "nimble/torch/replay_guard.h"

namespace nimble {

Plan::Plan(Recording recorded, const std::vector<bool>& without_out_variant)
    : recording(std::move(recorded)), graph(build_graph(recording.trace)) {
  adopted.resize(graph.memories.size());
  for (size_t i = 0; i < recording.calls.size(); ++i) {
    const RecordedCall& call = recording.calls[i];
    CallBinding binding{call.op, false};
    const bool wanted = without_out_variant.empty() || !without_out_variant[i];
    // Every result must be a memory we plan: an undefined result has no place to write to.
    const bool complete = call.results.size() == call.op.schema().returns().size();
    if (wanted && complete && !call.results.empty())
      if (const auto out = out_variant_of(call.op)) binding = {*out, true};
    if (!binding.writes_into_plan)
      for (const TensorSlot& result : call.results)
        for (const Operand& operand : graph.ops[i].operands)
          if (operand.view == result.view && operand.writes) adopted[operand.memory.index] = true;
    bindings.push_back(binding);
  }
}

WorkerPool& framework_workers() {
  // Never destroyed: a helper may still be parked when the process ends.
  static auto& pool = *new WorkerPool([] {
    thread_local FrameworkDispatch below_autograd;
    IntraOpThreads::set_for_this_thread(1);
  });
  return pool;
}

}  // namespace nimble
