#pragma once

#include <cstdint>
#include <vector>

#include "nimble/graph/graph.h"

namespace nimble {

// Puts the graph's ops into this order, which must keep every edge.
void reorder_ops(Graph& graph, const std::vector<uint32_t>& order);

}  // namespace nimble
