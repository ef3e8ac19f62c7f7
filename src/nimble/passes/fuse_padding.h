#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// Convolutions and pools read what was padded instead of the padded copy, and pad themselves, where
// that is exact. What only crops becomes a view.
void fuse_padding(Graph& graph);

}  // namespace nimble
