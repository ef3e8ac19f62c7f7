#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// Lets the ops that make new contents of memories of the user write them there, as soon as nobody
// reads the old ones any more; where somebody still does, a copy at the end. Leaves no updates.
void commit_updates(Graph& graph);

}  // namespace nimble
