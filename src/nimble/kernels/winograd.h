#pragma once

#include "nimble/kernels/ranked_kernel.h"

namespace nimble {

// 3x3 convolutions of stride 1 by fewer multiplications and more rounding: 4 or 2.25 times fewer.
// What is infinite or NaN comes out as of a plain sum.
std::vector<RankedKernel> winograd_candidates(const Convolution& convolution,
                                              std::span<const TensorDesc> operands);

}  // namespace nimble
