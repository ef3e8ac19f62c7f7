#pragma once

#include "nimble/kernels/ranked_kernel.h"

namespace nimble {

// Convolutions as products of windows, read where they lie or from a padded copy, and packed
// weights. Any groups, but only good where a group has many output channels.
std::vector<RankedKernel> dense_convolution_candidates(const Convolution& convolution,
                                                       std::span<const TensorDesc> operands);

}  // namespace nimble
