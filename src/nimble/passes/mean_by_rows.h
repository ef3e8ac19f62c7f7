#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// The mean of a large image becomes that of each row, and then of the rows: a core reads the rows
// that it has just written, where much of an image would have to come from other cores' caches.
void mean_by_rows(Graph& graph);

}  // namespace nimble
