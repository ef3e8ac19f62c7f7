#pragma once

#include <string>
#include <vector>

#include "nimble/graph/graph.h"

namespace nimble {

// Checks what every graph must satisfy, by itself and slowly: ids in range, operands inside their
// memory, producers and readers that agree with operands, edges forward, and a path between every
// two ops that touch common bytes with a write among them. One sentence per fault.
std::vector<std::string> validate_graph(const Graph& graph);

}  // namespace nimble
