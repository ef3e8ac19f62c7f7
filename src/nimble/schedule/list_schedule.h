#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "nimble/schedule/bounded_plan.h"

namespace nimble {

struct ListOptions {
  // How much work may lie, in recorded order, between the first node that has not started and one
  // that starts. Little keeps few memories in use.
  double run_ahead_ns = std::numeric_limits<double>::infinity();
  // A node starts only if what is in use stays within these bytes, and the others can still run in
  // recorded order within them. Kept if one worker alone could keep it.
  size_t memory_limit_bytes = std::numeric_limits<size_t>::max();
  const MemoryUses* uses = nullptr;  // needed for a limit
  // By node: the worker that should run it if it makes no difference otherwise; may be empty.
  const std::vector<uint32_t>* homes = nullptr;
};

// Lets time pass: whenever a worker is free, it takes of the nodes that may start the one with the
// longest path to the end. Of those with nearly as long a path: one whose home it is, then one
// whose predecessors it ran, then the first.
//
// `times` is when nodes start and end: with a limit, a simulation of the plan may start them too
// early, as it does not know of memory.
BoundedPlan list_schedule(const BoundedProblem& problem, const ListOptions& options,
                          BoundedTimes& times);

}  // namespace nimble
