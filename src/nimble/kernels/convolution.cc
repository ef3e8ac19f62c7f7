#include "nimble/kernels/dense_convolution.h"
#include "nimble/kernels/depthwise.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/panel_kernel.h"
#include "nimble/kernels/pixelwise_convolution.h"
#include "nimble/kernels/winograd.h"

namespace nimble {
namespace {

constexpr size_t kMostCandidates = 3;  // each is measured

std::vector<KernelPtr> candidates(const Convolution& convolution,
                                  std::span<const TensorDesc> operands) {
  if (convolution.groups > 1 && convolution.groups == operands[0].sizes[1]) {
    auto list = depthwise_candidates(convolution, operands);
    if (!list.empty()) return list;
  }
  auto list = winograd_candidates(convolution, operands);
  for (RankedKernel& kernel : pixelwise_convolution_candidates(convolution, operands))
    list.push_back(std::move(kernel));
  for (RankedKernel& kernel : dense_convolution_candidates(convolution, operands))
    list.push_back(std::move(kernel));
  return take_best(std::move(list), kMostCandidates);
}

}  // namespace

std::vector<KernelPtr> convolution_candidates(const Convolution& convolution,
                                              std::span<const TensorDesc> operands) {
  std::vector<KernelPtr> list = candidates(convolution, operands);
  if (!convolution.constant_weight)
    for (KernelPtr& kernel : list)
      kernel = pack_in_run(std::dynamic_pointer_cast<const PanelKernel>(kernel),
                           operands.back().sizes[3]);
  return list;
}

}  // namespace nimble
