#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// Lays images out with channels last wherever our ops make and use them, and puts copies where a
// layout is given from outside: the caller's tensors, constants, outputs, ops of the framework. A
// graph without image ops, or with images that lie so already, stays as it is.
//
// Needs ops that are not divided yet. Leaves the operands that image_operands() names as_image(),
// or with rows of pixels apart where a kernel takes that.
void choose_layout(Graph& graph);

}  // namespace nimble
