#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// Brings values and edges in line with ops that a pass has added, changed, reordered or removed:
// what each op reads and writes, in the order of `graph.ops`, is what counts. A write of a whole
// memory starts a value, another write changes the current one in part.
void relink(Graph& graph);

}  // namespace nimble
