#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// Removes ops of ours, and ops on constants, whose results nobody reads and that are no outputs.
void remove_dead_ops(Graph& graph);

}  // namespace nimble
