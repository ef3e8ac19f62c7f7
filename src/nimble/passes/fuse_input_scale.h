#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// A product of an image and one factor per image and channel (squeeze and excitation) that only a
// 1x1 convolution reads is computed by it as it reads.
// Needs: fuse_epilogues and fuse_input_relu have run, as one convolution does not do both to its
// input.
void fuse_input_scale(Graph& graph);

}  // namespace nimble
