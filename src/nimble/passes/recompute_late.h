#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// What a few steps made of one image, and is read again much later, when no cache holds it any more
// (the input of a layer, whose backward pass needs it), is made again there, from the image, which
// is read there anyway: one of the two is not kept in between.
// Needs: chains are fused, and recomputed in their readers where that saves reading.
void recompute_late(Graph& graph);

}  // namespace nimble
