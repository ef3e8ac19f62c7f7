#include "nimble/torch/plan.h"

#include <algorithm>

#include "nimble/graph/build.h"
#include "nimble/torch/intra_op.h"
#include "nimble/torch/out_variant.h"
#include "nimble/torch/replay_guard.h"

namespace nimble {

std::vector<ResultPolicy> best_policies(const Recording& recording) {
  std::vector<ResultPolicy> policies;
  for (const RecordedCall& call : recording.calls) {
    // With an out variant every result must be a memory we plan: an undefined one has no place.
    const bool complete = call.results.size() == call.op.schema().returns().size();
    const bool counted = std::all_of(call.results.begin(), call.results.end(),
                                     [](const ResultSlot& r) { return r.allocation >= 0; });
    if (complete && !call.results.empty() && out_variant_of(call.op))
      policies.push_back(ResultPolicy::kOutVariant);
    else
      policies.push_back(counted ? ResultPolicy::kPlannedAllocation : ResultPolicy::kAdoption);
  }
  return policies;
}

Plan::Plan(std::shared_ptr<Recording> of, const std::vector<ResultPolicy>& policies)
    : recorded(std::move(of)), recording(*recorded), graph(build_graph(recording.trace)) {
  for (size_t i = 0; i < recording.calls.size(); ++i) {
    const RecordedCall& call = recording.calls[i];
    const bool out = policies[i] == ResultPolicy::kOutVariant;
    bindings.push_back({out ? *out_variant_of(call.op) : call.op, policies[i]});
  }
  find_adopted();
}

Plan::Plan(const Plan& framework, Graph rewritten, std::vector<KernelChoice> chosen)
    : recorded(framework.recorded),
      recording(*recorded),
      graph(std::move(rewritten)),
      bindings(framework.bindings),
      kernels(std::move(chosen)) {
  find_adopted();
}

Plan::Plan(std::shared_ptr<Recording> of, Graph rewritten)
    : recorded(std::move(of)), recording(*recorded), graph(std::move(rewritten)) {
  for (const RecordedCall& call : recording.calls)
    bindings.push_back({call.op, ResultPolicy::kAdoption});
  find_adopted();
}

void Plan::find_adopted() {
  adopted.assign(graph.memories.size(), false);
  for (const Op& op : graph.ops) {
    if (!op.call.valid() || bindings[op.call.index].policy != ResultPolicy::kAdoption) continue;
    for (const ResultSlot& result : recording.calls[op.call.index].results)
      for (const Operand& operand : op.operands)
        if (operand.view == result.view && operand.writes) adopted[operand.memory.index] = true;
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
