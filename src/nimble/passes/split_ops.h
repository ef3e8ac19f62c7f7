#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "nimble/graph/graph.h"
#include "nimble/kernels/kernel.h"
#include "nimble/passes/tuning.h"

namespace nimble {

// What is known of a chosen kernel.
struct SplitInfo {
  Work work;
  double cost_ns = 0;                                // of the whole op on one core
  std::function<size_t(const Part&)> scratch_bytes;  // none: it needs no scratch
};

struct SplitOptions {
  size_t workers = 1;
  double smallest_part_ns = kSmallestPartNs;
  size_t most_parts_per_worker = kMostPartsPerWorker;
  std::vector<SplitInfo> kernels;  // by KernelId
};

// Replaces each large op of ours by parts of it that the workers do at the same time. They stand
// next to each other, have the bytes they touch in their operands and the same `group`; groups
// count the ops from 0. Ops whose kernel needs scratch get memory for it as their last operand,
// divided or not.
//
// Needs ops with kernels; nothing may rewrite the graph afterwards. Returns the expected time of
// each op in nanoseconds, 0 for those of the framework.
std::vector<double> split_ops(Graph& graph, const SplitOptions& options);

}  // namespace nimble
