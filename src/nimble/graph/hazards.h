#pragma once

#include <vector>

#include "nimble/graph/graph.h"

namespace nimble {

// Every pair of ops that touch common bytes of a memory, at least one of them writing, in program
// order; less what a write that covers an earlier use already orders. Sorted, without repeats.
std::vector<Edge> find_hazards(const Graph& graph);

}  // namespace nimble
