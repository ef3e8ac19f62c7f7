#pragma once

#include "nimble/graph/graph.h"
#include "nimble/trace/trace.h"

namespace nimble {

// Resolves views, in-place writes and reused buffers of a trace into values and hazards.
// Needs: uses of a call that lie inside their buffers. Leaves: a graph that validates.
Graph build_graph(const Trace& trace);

}  // namespace nimble
