#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// The gradient of a clamp asks whether its input lay between the bounds. Its result tells that too,
// and is kept for the next layer's gradients anyway: the input need not be.
void use_clamped_in_gradients(Graph& graph);

}  // namespace nimble
