#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// What is done element by element to a concatenation, and to nothing else of it, is done to its
// inputs instead, where most of them come from ops that can do it as they write:
//   relu(concatenation(a, b)) -> concatenation(relu(a), relu(b))
// Needs: merge_equal_ops and fold_constants have run. Leaves chains for fold_batch_norm and
// fuse_epilogues.
void distribute_over_concatenation(Graph& graph);

}  // namespace nimble
