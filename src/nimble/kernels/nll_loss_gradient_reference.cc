#include <stdexcept>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

void nll_loss_gradient_reference(const NllLossGradient& attributes,
                                 std::span<const TensorDesc> operands, void* const* data) {
  const NllLoss& loss = attributes.loss;
  const TensorDesc& output = operands.back();
  const size_t total = loss.weight ? 3 : 2;
  const auto element = [&](size_t operand, const std::vector<int64_t>& index) -> float& {
    return static_cast<float*>(data[operand])[place(operands[operand], index)];
  };
  for_each_index(output.sizes, [&](const std::vector<int64_t>& at) {
    const int64_t target = static_cast<const int64_t*>(data[1])[place(operands[1], {at[0]})];
    const bool counts = target != loss.ignore_index;
    if (counts && (target < 0 || target >= output.sizes[1])) throw std::out_of_range("target");
    float result = 0;
    if (counts && target == at[1]) {
      result = -(loss.weight ? element(2, {target}) : 1.0f);
      result *= loss.reduction == LossReduction::kNone ? element(0, {at[0]}) : element(0, {});
      if (loss.reduction == LossReduction::kMean) result /= element(total, {});
    }
    element(total + 1, at) = result;
  });
}

std::vector<KernelCase> nll_loss_gradient_test_cases() {
  using namespace cases;
  std::vector<KernelCase> list;
  for (LossReduction reduction : {LossReduction::kNone, LossReduction::kMean, LossReduction::kSum})
    for (bool weight : {false, true})
      for (int64_t ignored : {-100, 3})
        for (int64_t rows : {1, 9, 32}) {
          const TensorDesc number = dense({});
          KernelCase made{
              NllLossGradient{{reduction, ignored, weight}},
              {reduction == LossReduction::kNone ? dense({rows}) : number, dense({rows}, int64())}};
          if (weight) made.operands.push_back(dense({7}));
          made.operands.push_back(number);
          made.operands.push_back(dense({rows, 7}));
          list.push_back(made);
        }
  const TensorDesc slice{.dtype = float32(), .sizes = {9, 17}, .strides = {20, 1}, .offset = 3};
  const TensorDesc everywhere{.dtype = float32(), .sizes = {9}, .strides = {0}};
  list.push_back({NllLossGradient{{LossReduction::kNone}},
                  {everywhere, dense({9}, int64()), dense({}), slice}});
  return list;
}

std::vector<KernelCase> nll_loss_gradient_bench_cases() {
  using namespace cases;
  return {{NllLossGradient{}, {dense({}), dense({128}, int64()), dense({}), dense({128, 1000})}}};
}

}  // namespace nimble
