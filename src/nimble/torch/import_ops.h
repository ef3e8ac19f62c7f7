#pragma once

#include "nimble/graph/graph.h"
#include "nimble/torch/recording.h"

namespace nimble {

// Says in our own terms what the recorded calls compute, where there are terms for it; the others
// stay framework calls. Ops of ours are pure: what a call updated in place becomes a new memory.
// `graph` is the recording's own. Leaves: a graph that validates.
Graph import_ops(const Recording& recording, const Graph& graph);

}  // namespace nimble
