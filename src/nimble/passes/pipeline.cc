#include "nimble/passes/pipeline.h"

#include <algorithm>
#include <chrono>

#include "nimble/base/error.h"
#include "nimble/graph/dump.h"
#include "nimble/graph/validate.h"
#include "nimble/passes/choose_layout.h"
#include "nimble/passes/commit_updates.h"
#include "nimble/passes/distribute_over_concatenation.h"
#include "nimble/passes/fold_batch_norm.h"
#include "nimble/passes/fuse_chains.h"
#include "nimble/passes/fuse_epilogues.h"
#include "nimble/passes/fuse_input_relu.h"
#include "nimble/passes/fuse_input_scale.h"
#include "nimble/passes/fuse_padding.h"
#include "nimble/passes/fuse_separable.h"
#include "nimble/passes/fuse_subsampling.h"
#include "nimble/passes/fuse_updates.h"
#include "nimble/passes/mean_by_rows.h"
#include "nimble/passes/merge_equal_ops.h"
#include "nimble/passes/place_concatenations.h"
#include "nimble/passes/recompute_in_readers.h"
#include "nimble/passes/recompute_late.h"
#include "nimble/passes/remove_copies.h"
#include "nimble/passes/remove_dead_ops.h"
#include "nimble/passes/start_updates_early.h"
#include "nimble/passes/use_clamped_in_gradients.h"

namespace nimble {
namespace {

struct Pass {
  const char* name;
  std::function<void(Graph&)> run;
};

// The table of contents.
std::vector<Pass> passes(const PassOptions& options) {
  return {
      {"remove_dead_ops", remove_dead_ops},
      {"merge_equal_ops", merge_equal_ops},
      {"remove_copies", remove_copies},
      {"use_clamped_in_gradients", use_clamped_in_gradients},
      {"fold_constants", [&](Graph& graph) { fold_constants(graph, options.fold_constants); }},
      // Branches have their own batch norms and activations from here on.
      {"distribute_over_concatenation", distribute_over_concatenation},
      {"fold_batch_norm", fold_batch_norm},
      {"fuse_subsampling", fuse_subsampling},
      {"fuse_padding", fuse_padding},
      // An activation costs nothing behind what makes its input, something in front of what reads
      // its result: epilogues first.
      {"fuse_epilogues", fuse_epilogues},
      {"fuse_input_relu", fuse_input_relu},
      {"fuse_input_scale", fuse_input_scale},
      {"fuse_separable", fuse_separable},
      {"mean_by_rows", mean_by_rows},
      // Those above change which op computes what, those below only join what lies alike.
      {"choose_layout", choose_layout},
      {"place_concatenations", place_concatenations},
      {"fuse_chains", fuse_chains},
      {"recompute_in_readers", recompute_in_readers},
      {"recompute_late", recompute_late},
      {"commit_updates", commit_updates},
      {"fuse_updates", fuse_updates},
      {"remove_unread_ops", remove_dead_ops},
      {"start_updates_early", start_updates_early},
  };
}

void check(const Graph& graph, const std::string& pass) {
  const auto faults = validate_graph(graph);
  if (!faults.empty()) throw InternalError(message("after ", pass, ": ", faults.front()));
}

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : passes({})) names.emplace_back(pass.name);
  return names;
}

std::vector<PassRecord> run_passes(Graph& graph, const PassOptions& options) {
  const auto all = passes(options);
  for (const std::string& name : options.disabled)
    if (std::none_of(all.begin(), all.end(), [&](const Pass& pass) { return name == pass.name; }))
      throw UserError(message("there is no pass named ", name));

  using Clock = std::chrono::steady_clock;
  std::vector<PassRecord> records;
  if (options.dump) options.dump("imported", dump_text(graph));
  for (const Pass& pass : all) {
    if (std::find(options.disabled.begin(), options.disabled.end(), pass.name) !=
        options.disabled.end())
      continue;
    PassRecord record{pass.name, 0, graph.ops.size(), 0};
    const auto start = Clock::now();
    pass.run(graph);
    record.ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    record.ops_after = graph.ops.size();
    records.push_back(std::move(record));
    if (options.verify) check(graph, pass.name);
    if (options.dump) options.dump(pass.name, dump_text(graph));
  }
  return records;
}

}  // namespace nimble
