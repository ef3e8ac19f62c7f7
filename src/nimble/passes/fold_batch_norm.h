#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// A chain that multiplies and adds constants by channel (batch norm, a bias of its own) on what a
// convolution or a product with a constant matrix leaves becomes part of its weight and bias, which
// are computed ahead of time.
// Needs: fold_constants has run. Leaves: other chains, and those that have another reader beside.
void fold_batch_norm(Graph& graph);

}  // namespace nimble
