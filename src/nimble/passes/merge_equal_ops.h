#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// Computes once what ops of ours compute more than once: the same attributes on the same views of
// stable memories. Ops of the framework go on reading what they read.
void merge_equal_ops(Graph& graph);

}  // namespace nimble
