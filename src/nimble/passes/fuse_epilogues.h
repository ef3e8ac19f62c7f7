#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// Activations and additions become part of the op of ours that makes what they are applied to, if
// nobody else reads that: the activation and the addend in its epilogue.
// Needs: chains as imported, one step each. Leaves chains of other kinds alone.
void fuse_epilogues(Graph& graph);

}  // namespace nimble
