#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// A depthwise convolution that only a 1x1 convolution reads becomes one op with it.
// Needs: fold_batch_norm, fuse_epilogues and fuse_input_relu have run; they know the two apart
// only.
void fuse_separable(Graph& graph);

}  // namespace nimble
