#include <cmath>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

void softmax_gradient_reference(const SoftmaxGradient& attributes,
                                std::span<const TensorDesc> operands, void* const* data) {
  const TensorDesc& output = operands[2];
  const auto rank = static_cast<int64_t>(output.sizes.size());
  const auto dim = static_cast<size_t>(attributes.dim < 0 ? attributes.dim + rank : attributes.dim);
  const auto element = [&](size_t operand, const std::vector<int64_t>& index) -> float& {
    return static_cast<float*>(data[operand])[place(operands[operand], index)];
  };
  std::vector<int64_t> outer = output.sizes;
  outer[dim] = 1;
  for_each_index(outer, [&](std::vector<int64_t> index) {
    double sum = 0;
    for (index[dim] = 0; index[dim] < output.sizes[dim]; ++index[dim]) {
      const double g = element(0, index);
      sum += attributes.log ? g : g * element(1, index);
    }
    for (index[dim] = 0; index[dim] < output.sizes[dim]; ++index[dim]) {
      const double g = element(0, index);
      const double y = element(1, index);
      element(2, index) =
          static_cast<float>(attributes.log ? g - std::exp(y) * sum : (g - sum) * y);
    }
  });
}

std::vector<KernelCase> softmax_gradient_test_cases() {
  using namespace cases;
  std::vector<KernelCase> list;
  const auto add = [&](bool log, int64_t dim, const TensorDesc& desc) {
    list.push_back({SoftmaxGradient{dim, log}, {desc, desc, desc}});
  };
  for (bool log : {false, true}) {
    for (int64_t size : {1, 2, 3, 7, 8, 15, 16, 17, 33, 100}) {
      add(log, 0, dense({size}));
      add(log, -1, dense({5, size}));
      add(log, 0, dense({size, 5}));
      add(log, 1, dense({3, size, 19}));
    }
    for (int64_t dim : {0, 1, 2, 3}) {
      add(log, dim, dense({2, 5, 3, 7}));
      add(log, dim, image(2, 21, 5, 4, 24));
      add(log, dim, dense({2, 0, 3, 7}));
    }
  }
  return list;
}

std::vector<KernelCase> softmax_gradient_bench_cases() {
  using namespace cases;
  const auto same = [](bool log, const TensorDesc& desc) {
    return KernelCase{SoftmaxGradient{-1, log}, {desc, desc, desc}};
  };
  return {same(true, dense({128, 1000})), same(true, dense({32, 10})),
          same(false, dense({8 * 12 * 128, 128}))};
}

}  // namespace nimble
