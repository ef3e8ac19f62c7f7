#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"

namespace nimble {

void layer_norm_gradient_reference(const LayerNormGradient& attributes,
                                   std::span<const TensorDesc> operands, void* const* data) {
  const TensorDesc& output = operands.back();
  const auto operand = [&](size_t i) { return static_cast<float*>(data[i]); };
  int64_t size = 1;
  for (size_t d = output.sizes.size() - static_cast<size_t>(attributes.dims);
       d < output.sizes.size(); ++d)
    size *= output.sizes[d];
  if (output.numel() == 0) return;
  for (int64_t row = 0; row < output.numel() / size; ++row) {
    const auto gradient = [&](int64_t i) {
      const double g = operand(0)[row * size + i];
      return attributes.weight ? g * operand(4)[i] : g;
    };
    const auto normalised = [&](int64_t i) {
      return (static_cast<double>(operand(1)[row * size + i]) - operand(2)[row]) * operand(3)[row];
    };
    double sum = 0;
    double product = 0;
    for (int64_t i = 0; i < size; ++i) {
      sum += gradient(i);
      product += gradient(i) * normalised(i);
    }
    const auto count = static_cast<double>(size);
    for (int64_t i = 0; i < size; ++i)
      operand(operands.size() - 1)[row * size + i] = static_cast<float>(
          operand(3)[row] * (gradient(i) - sum / count - normalised(i) * product / count));
  }
}

namespace {

KernelCase gradient(const std::vector<int64_t>& sizes, int64_t dims, bool weight) {
  using cases::dense;
  const auto cut = sizes.end() - dims;
  std::vector<int64_t> outer(sizes.begin(), cut);
  outer.resize(sizes.size(), 1);
  KernelCase made{LayerNormGradient{.dims = dims, .weight = weight},
                  {dense(sizes), dense(sizes), dense(outer), dense(outer)}};
  if (weight) made.operands.push_back(dense({cut, sizes.end()}));
  made.operands.push_back(dense(sizes));
  return made;
}

}  // namespace

std::vector<KernelCase> layer_norm_gradient_test_cases() {
  std::vector<KernelCase> list;
  for (bool weight : {false, true}) {
    for (int64_t size : {1, 2, 7, 16, 17, 33, 100}) {
      list.push_back(gradient({5, size}, 1, weight));
      list.push_back(gradient({2, 3, size}, 1, weight));
      list.push_back(gradient({2, 3, size}, 2, weight));
      list.push_back(gradient({2, 2, 3, size}, 1, weight));
    }
    list.push_back(gradient({67}, 1, weight));
    list.push_back(gradient({2, 3, 4, 5}, 3, weight));
  }
  return list;
}

std::vector<KernelCase> layer_norm_gradient_bench_cases() {
  return {gradient({8, 128, 768}, 1, true), gradient({8, 128, 768}, 1, false)};
}

}  // namespace nimble
