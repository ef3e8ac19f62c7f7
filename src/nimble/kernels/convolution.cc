#include "nimble/kernels/depthwise.h"
#include "nimble/kernels/families.h"

namespace nimble {

std::vector<KernelPtr> convolution_candidates(const Convolution& convolution,
                                              std::span<const TensorDesc> operands) {
  return depthwise_candidates(convolution, operands);
}

}  // namespace nimble
