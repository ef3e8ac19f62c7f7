#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// Chains that change memory in place become one with the chains before them that made or changed
// what they read: the steps of an optimizer for one parameter are one op, each memory read and
// written once. If others read what a chain makes, it stays a result.
// Needs: layouts are chosen. Leaves: chains that LoopNest takes.
void fuse_updates(Graph& graph);

}  // namespace nimble
