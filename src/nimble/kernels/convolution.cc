#include "nimble/kernels/dense_convolution.h"
#include "nimble/kernels/depthwise.h"
#include "nimble/kernels/families.h"

namespace nimble {

std::vector<KernelPtr> convolution_candidates(const Convolution& convolution,
                                              std::span<const TensorDesc> operands) {
  if (convolution.groups > 1 && convolution.groups == operands[0].sizes[1]) {
    auto list = depthwise_candidates(convolution, operands);
    if (!list.empty()) return list;
  }
  return dense_convolution_candidates(convolution, operands);
}

}  // namespace nimble
