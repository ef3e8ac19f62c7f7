#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// Moves ops of ours that nobody waits for up to where all they wait for is done: an optimizer then
// reads a gradient that is still in cache, instead of all gradients at the end of the step.
// Needs: updates are committed.
void start_updates_early(Graph& graph);

}  // namespace nimble
