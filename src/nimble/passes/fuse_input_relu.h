#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// A relu that only depthwise convolutions read is applied by them as they read.
// Needs: fuse_epilogues has run, which finds the better place where there is one.
void fuse_input_relu(Graph& graph);

}  // namespace nimble
