#pragma once

#include <functional>

#include "nimble/graph/graph.h"
#include "nimble/torch/recording.h"

namespace nimble {

// Says in our own terms what the recorded calls compute, where there are terms for it; the others
// stay framework calls. Ops of ours are pure: what a call updated in place becomes a new memory.
// `graph` is the recording's own; `only` says which of its ops to look at, empty: all. Leaves: a
// graph that validates.
Graph import_ops(const Recording& recording, const Graph& graph,
                 const std::function<bool(const Op&)>& only = {});

}  // namespace nimble
