#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// Chains, and sums of chains, that read what another chain of the same size leaves become one with
// it. If others read that too, the chain has one more output.
// Needs: layouts are chosen. Leaves: chains of a few operands and steps, that registers hold.
void fuse_chains(Graph& graph);

}  // namespace nimble
