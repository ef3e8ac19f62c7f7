#pragma once

#include <functional>

#include "nimble/graph/graph.h"

namespace nimble {

struct FoldConstantsOptions {
  // Whether an op of the framework gives the same results whenever it is run on the same operands,
  // and does nothing else. None is taken to do so without it.
  std::function<bool(const Op&)> foldable;
};

// Moves ops that read only constants to `graph.constant_ops`; their results become kFolded. Results
// that are outputs of the program are left alone.
void fold_constants(Graph& graph, const FoldConstantsOptions& options = {});

}  // namespace nimble
