#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// Lets ops of ours read what was copied instead of the copy, if both lie alike and neither changes.
// Autograd makes such copies of what an activation in place will overwrite.
void remove_copies(Graph& graph);

}  // namespace nimble
