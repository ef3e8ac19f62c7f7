#include <stdexcept>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

void nll_loss_reference(const NllLoss& attributes, std::span<const TensorDesc> operands,
                        void* const* data) {
  const auto& sizes = operands[0].sizes;
  const size_t loss = attributes.weight ? 3 : 2;
  const auto element = [&](size_t operand, const std::vector<int64_t>& index) -> float& {
    return static_cast<float*>(data[operand])[place(operands[operand], index)];
  };
  double sum = 0;
  double total = 0;
  for (int64_t i = 0; i < sizes[0]; ++i) {
    const int64_t target = static_cast<const int64_t*>(data[1])[place(operands[1], {i})];
    const bool counts = target != attributes.ignore_index;
    if (counts && (target < 0 || target >= sizes[1])) throw std::out_of_range("target");
    const double weight = !counts ? 0 : attributes.weight ? element(2, {target}) : 1;
    const double term = counts ? -weight * element(0, {i, target}) : 0;
    if (attributes.reduction == LossReduction::kNone) element(loss, {i}) = static_cast<float>(term);
    sum += term;
    total += weight;
  }
  if (attributes.reduction == LossReduction::kNone) total = 0;
  element(loss + 1, {}) = static_cast<float>(total);
  if (attributes.reduction == LossReduction::kMean)
    element(loss, {}) = static_cast<float>(sum / total);
  if (attributes.reduction == LossReduction::kSum) element(loss, {}) = static_cast<float>(sum);
}

// Targets of a test are 0 to 6.
std::vector<KernelCase> nll_loss_test_cases() {
  using namespace cases;
  std::vector<KernelCase> list;
  const TensorDesc columns{.dtype = float32(), .sizes = {9, 11}, .strides = {1, 9}};
  const TensorDesc spread{.dtype = int64(), .sizes = {9}, .strides = {3}, .offset = 2};
  for (LossReduction reduction : {LossReduction::kNone, LossReduction::kMean, LossReduction::kSum})
    for (bool weight : {false, true})
      for (int64_t ignored : {-100, 3})
        for (int64_t rows : {1, 9, 32}) {
          const bool odd = rows == 9;
          const int64_t classes = odd ? 11 : 7;
          const TensorDesc number = dense({});
          KernelCase made{
              NllLoss{reduction, ignored, weight},
              {odd ? columns : dense({rows, classes}), odd ? spread : dense({rows}, int64())}};
          if (weight) made.operands.push_back(dense({classes}));
          made.operands.push_back(reduction == LossReduction::kNone ? dense({rows}) : number);
          made.operands.push_back(number);
          list.push_back(made);
        }
  return list;
}

std::vector<KernelCase> nll_loss_bench_cases() {
  using namespace cases;
  return {{NllLoss{}, {dense({128, 1000}), dense({128}, int64()), dense({}), dense({})}}};
}

}  // namespace nimble
