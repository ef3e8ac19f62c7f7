
#include "nimble/kernels/families.h"
#include "nimble/kernels/nll_targets.h"

namespace nimble {
namespace {

// One number per row: nothing for vectors.
class NllLossKernel final : public Kernel {
 public:
  NllLossKernel(const NllLoss& attributes, std::span<const TensorDesc> operands)
      : attributes_(attributes),
        probabilities_(operands[0]),
        targets_(attributes, operands[1], operands[0].sizes[1],
                 attributes.weight ? &operands[2] : nullptr),
        loss_stride_(operands[operands.size() - 2].sizes.empty()
                         ? 0
                         : operands[operands.size() - 2].strides[0]) {}

  std::string name() const override { return "nll_loss"; }
  Work work() const override { return {1, 0, 1, 0}; }

  void run(const KernelArguments& arguments) const override {
    const float* from = static_cast<const float*>(arguments.operands[0]);
    const void* targets = arguments.operands[1];
    const void* weights = attributes_.weight ? arguments.operands[2] : nullptr;
    const size_t first_output = attributes_.weight ? 3 : 2;
    float* loss = static_cast<float*>(arguments.operands[first_output]);
    float* total = static_cast<float*>(arguments.operands[first_output + 1]);
    const bool each = attributes_.reduction == LossReduction::kNone;
    double sum = 0;
    double weight_sum = 0;
    for (int64_t row = 0; row < probabilities_.sizes[0]; ++row) {
      const auto target = targets_.at(targets, weights, row);
      double term = 0;
      if (target.counts) {
        term = -target.weight *
               from[row * probabilities_.strides[0] + target.index * probabilities_.strides[1]];
        weight_sum += target.weight;
      }
      if (each) loss[row * loss_stride_] = static_cast<float>(term);
      sum += term;
    }
    *total = each ? 0 : static_cast<float>(weight_sum);
    if (attributes_.reduction == LossReduction::kSum) *loss = static_cast<float>(sum);
    if (attributes_.reduction == LossReduction::kMean)
      *loss = static_cast<float>(sum / weight_sum);  // of nothing NaN, as in the framework
  }

 private:
  NllLoss attributes_;
  TensorDesc probabilities_;
  NllTargets targets_;
  int64_t loss_stride_;
};

}  // namespace

std::vector<KernelPtr> nll_loss_candidates(const NllLoss& attributes,
                                           std::span<const TensorDesc> operands) {
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i].dtype.name != (i == 1 ? "int64" : "float32")) return {};
  if (operands[0].sizes.size() != 2 || operands[1].sizes.size() != 1) return {};
  return {std::make_shared<NllLossKernel>(attributes, operands)};
}

}  // namespace nimble
