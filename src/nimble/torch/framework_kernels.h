#pragma once

#include <span>
#include <vector>

#include "nimble/kernels/kernel.h"

namespace nimble {

// The framework's own ways to compute an op of ours, to be measured beside our kernels and to check
// them: convolutions, their gradients, and products of matrices, with what was fused behind them as
// ops of their own. They are not divided, and allocate as the framework does.
std::vector<KernelPtr> framework_candidates(const OpAttributes& attributes,
                                            std::span<const TensorDesc> operands);

}  // namespace nimble
