#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// Moves updates of the user's tensors that nobody waits for up to where all they wait for is done:
// an optimizer then reads a gradient that is still in cache, instead of all at the end of the step.
// Needs: updates are committed.
void start_updates_early(Graph& graph);

}  // namespace nimble
