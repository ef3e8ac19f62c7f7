#pragma once

#include "nimble/graph/graph.h"

namespace nimble {

// Removes concatenations: whoever makes a piece writes it where it belongs in the whole, and others
// read it there.
//
//      a ─┐                          a → whole[:, :8]
//         ├─ concatenation → whole   b → whole[:, 8:]
//      b ─┘
//
// A concatenation that has its pieces side by side already (a prefix of a later one, as in
// DenseNet) is a view. Pieces that must stay where they are, those of the framework, the caller's
// or an output, are copied.
//
// Needs ops that are not divided yet, and layouts that are chosen.
void place_concatenations(Graph& graph);

}  // namespace nimble
