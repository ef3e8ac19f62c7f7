#pragma once

#include <span>

#include "nimble/kernels/kernel.h"

// The backward pass of batch norm as an importer writes it, in front of an activation or not, is
// computed by kernels of its own: everything in registers, where the loops of a chain take a load
// and a store for each step.
namespace nimble {

// ((input - mean) * k + g) * a + c, where g is the gradient that comes through an activation of
// input * scale + shift, of an image that was kept, or through none. Images lie channels last, all
// else are vectors of channels. Null if the chain is another.
KernelPtr make_norm_gradient(const Chain& chain, std::span<const TensorDesc> operands);

// Sums of g and of g * (input - mean); g may be an output.
KernelPtr make_norm_gradient_sums(const ChainSums& sums, std::span<const TensorDesc> operands);

}  // namespace nimble
