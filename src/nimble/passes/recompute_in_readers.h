#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// A chain that reads what a few cheap steps made of an image that it reads as well (a batch norm's
// result, a mask) makes it again from there: an image less to read, and one that nobody reads any
// more is not kept. Likewise where it reads no image less, but is the only reader.
// Needs: chains are fused. Leaves: chains of a few operands and steps.
void recompute_in_readers(Graph& graph);

}  // namespace nimble
