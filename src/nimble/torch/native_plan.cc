#include "nimble/torch/native_plan.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "nimble/base/error.h"
#include "nimble/passes/split_ops.h"
#include "nimble/torch/framework_kernels.h"
#include "nimble/torch/import_ops.h"
#include "nimble/torch/intra_op.h"
#include "nimble/torch/op_semantics.h"

namespace nimble {
namespace {

// Whether the framework gives the same result for the same constants every time.
bool is_deterministic(const Recording& recording, const Op& op) {
  const c10::OperatorHandle& handle = recording.calls[op.call.index].op;
  return !semantics_of(handle).draws_random_numbers &&
         recording.calls[op.call.index].results.size() == handle.schema().returns().size();
}

// Whether there is an op that could use it.
bool allow_winograd(Graph& graph) {
  bool any = false;
  for (Op& op : graph.ops) {
    if (!op.attributes) continue;
    if (auto* conv = std::get_if<Convolution>(&*op.attributes)) any = conv->allow_winograd = true;
    if (auto* backward = std::get_if<ConvolutionBackwardInput>(&*op.attributes))
      any = backward->allow_winograd = true;
  }
  return any;
}

std::vector<KernelChoice> choose_kernels(Graph& graph, size_t workers, size_t& distinct) {
  const IntraOpThreads one_thread(1);
  std::vector<KernelChoice> choices;
  std::map<const KernelChoice*, KernelId> ids;
  KernelSelector selector(workers, framework_candidates);
  for (Op& op : graph.ops) {
    if (!op.attributes) continue;
    std::vector<TensorDesc> descs;
    for (const Operand& operand : op.operands) descs.push_back(graph.desc_of(operand));
    const KernelChoice& choice = selector.choose(*op.attributes, descs);
    const auto [place, is_new] = ids.try_emplace(&choice, KernelId(choices.size()));
    if (is_new) choices.push_back(choice);
    op.kernel = place->second;
  }
  distinct = selector.distinct_ops();
  return choices;
}

}  // namespace

NativePlan make_native_plan(const Plan& framework, const NativePlanOptions& options) {
  NativePlan result;
  Graph graph = import_ops(framework.recording, framework.graph);
  const auto is_ours = [](const Op& op) { return op.attributes.has_value(); };
  if (std::none_of(graph.ops.begin(), graph.ops.end(), is_ours)) return result;
  if (options.winograd) result.may_use_winograd = allow_winograd(graph);
  PassOptions pass_options;
  pass_options.fold_constants.foldable = [&](const Op& op) {
    return is_deterministic(framework.recording, op);
  };
  result.passes = run_passes(graph, pass_options);
  if (std::none_of(graph.ops.begin(), graph.ops.end(), is_ours)) return result;
  std::set<std::string> left;
  for (const Op& op : graph.ops)
    if (!is_ours(op)) left.insert(op.name);
  result.framework_ops.assign(left.begin(), left.end());

  const auto start = std::chrono::steady_clock::now();
  std::vector<KernelChoice> kernels = choose_kernels(graph, options.workers, result.distinct_ops);
  result.select_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  SplitOptions split;
  split.workers = options.workers;
  for (const KernelChoice& choice : kernels) {
    const KernelPtr kernel = choice.kernel;
    split.kernels.push_back({kernel->work(), choice.ns,
                             [kernel](const Part& part) { return kernel->scratch_bytes(part); }});
  }
  split_ops(graph, split);
  result.plan = std::make_unique<Plan>(framework, std::move(graph), std::move(kernels));
  return result;
}

}  // namespace nimble
