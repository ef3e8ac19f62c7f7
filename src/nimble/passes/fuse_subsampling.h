#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// A pool of one pixel with a stride only leaves out pixels: a 1x1 convolution behind it reads every
// n-th pixel itself.
void fuse_subsampling(Graph& graph);

}  // namespace nimble
