#pragma once

#include <memory>

#include "nimble/torch/plan.h"

namespace nimble {

struct FrameworkRewrite {
  // A convolution with what follows it as one call of cuDNN's: a relu, or an addition and a relu.
  bool fuse = false;
  // Weights of convolutions lie as activations in channels_last do.
  bool channels_last = false;
};

// The recorded program on fewer calls of the framework's: batch norm that only applies statistics
// is folded into the convolutions before it, by the same passes as for kernels of ours. What is
// folded are constants of the new plan, which `FoldedConstants` fills. Null: there is nothing to
// rewrite. Throws Refused if an op of the result has no call.
std::unique_ptr<Plan> rewrite_framework_calls(const Plan& recorded,
                                              const FrameworkRewrite& rewrite);

}  // namespace nimble
