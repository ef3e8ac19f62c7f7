#include <algorithm>

#include "nimble/kernels/families.h"
#include "nimble/kernels/nll_targets.h"

namespace nimble {
namespace {

class NllLossGradientKernel final : public Kernel {
 public:
  NllLossGradientKernel(const NllLoss& loss, std::span<const TensorDesc> operands)
      : loss_(loss),
        output_(operands.back()),
        targets_(loss, operands[1], output_.sizes[1], loss.weight ? &operands[2] : nullptr),
        gradient_stride_(operands[0].sizes.empty() ? 0 : operands[0].strides[0]) {}

  std::string name() const override { return "nll_loss_gradient"; }
  Work work() const override {
    if (output_.numel() == 0) return {0, 0, 0, 0};
    return {output_.sizes[0], 1, 1, 0};
  }

  void run(const KernelArguments& arguments) const override {
    const float* gradient = static_cast<const float*>(arguments.operands[0]);
    const void* weights = loss_.weight ? arguments.operands[2] : nullptr;
    const size_t total = loss_.weight ? 3 : 2;
    float* output = static_cast<float*>(arguments.operands[total + 1]);
    const float divisor = loss_.reduction == LossReduction::kMean
                              ? *static_cast<const float*>(arguments.operands[total])
                              : 1.0f;
    for (int64_t row = arguments.part.row_begin; row < arguments.part.row_end; ++row) {
      float* to = output + row * output_.strides[0];
      std::fill_n(to, output_.sizes[1], 0.0f);
      const auto target = targets_.at(arguments.operands[1], weights, row);
      if (!target.counts) continue;
      const bool each = loss_.reduction == LossReduction::kNone;
      to[target.index] = -target.weight * gradient[each ? row * gradient_stride_ : 0] / divisor;
    }
  }

 private:
  NllLoss loss_;
  TensorDesc output_;
  NllTargets targets_;
  int64_t gradient_stride_;
};

}  // namespace

std::vector<KernelPtr> nll_loss_gradient_candidates(const NllLossGradient& attributes,
                                                    std::span<const TensorDesc> operands) {
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i].dtype.name != (i == 1 ? "int64" : "float32")) return {};
  const TensorDesc& output = operands.back();
  if (output.sizes.size() != 2 || operands[1].sizes.size() != 1) return {};
  if (output.sizes[1] > 1 && output.strides[1] != 1) return {};
  return {std::make_shared<NllLossGradientKernel>(attributes.loss, operands)};
}

}  // namespace nimble
