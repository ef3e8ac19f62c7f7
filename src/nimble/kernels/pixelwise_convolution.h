#pragma once

#include "nimble/kernels/ranked_kernel.h"

namespace nimble {

// Convolutions of many small images, as those of training: the same pixel of all images at a time,
// with the taps that lie inside of the image at this pixel.
std::vector<RankedKernel> pixelwise_convolution_candidates(const Convolution& convolution,
                                                           std::span<const TensorDesc> operands);

}  // namespace nimble
