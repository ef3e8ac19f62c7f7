#pragma once

#include <string>

#include "nimble/graph/graph.h"

namespace nimble {

// One line per op:  %12 = aten::relu(%11: float32[1,64,56,56])  # features.0  after 3, 7
// Ops of ours by what they do:  %12 = convolution 3x3 relu(...). Then those on constants.
std::string dump_text(const Graph& graph);

// The same for Graphviz: ops are boxes, dependencies are arrows.
std::string dump_dot(const Graph& graph);

}  // namespace nimble
