#include <cmath>

#include "nimble/kernels/activation_reference.h"
#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

void group_norm_reference(const GroupNorm& attributes, std::span<const TensorDesc> operands,
                          void* const* data) {
  const auto element = [&](size_t operand, const std::vector<int64_t>& index) -> float& {
    return static_cast<float*>(data[operand])[place(operands[operand], index)];
  };
  const size_t output = operands.size() - 1;
  std::vector<int64_t> sizes = operands[output].sizes;
  const int64_t group_size = sizes[1] / attributes.groups;
  const int64_t images = sizes[0];
  sizes[0] = 1;
  sizes[1] = group_size;

  for_each_index({images, attributes.groups}, [&](const std::vector<int64_t>& group) {
    const auto moved = [&](std::vector<int64_t> index) {
      index[0] = group[0];
      index[1] += group[1] * group_size;
      return index;
    };
    double count = 0;
    double mean = 0;
    for_each_index(sizes, [&](const auto& index) {
      mean += element(0, moved(index));
      ++count;
    });
    mean /= count;
    double variance = 0;
    for_each_index(sizes, [&](const auto& index) {
      const double distance = element(0, moved(index)) - mean;
      variance += distance * distance / count;
    });
    for_each_index(sizes, [&](const auto& index) {
      const std::vector<int64_t> at = moved(index);
      double x = (element(0, at) - mean) / std::sqrt(variance + attributes.epsilon);
      if (attributes.weight) x *= element(1, {at[1]});
      if (attributes.bias) x += element(attributes.weight ? 2 : 1, {at[1]});
      element(output, at) = reference_activation(attributes.activation, static_cast<float>(x));
    });
  });
}

namespace {

KernelCase normalize(const GroupNorm& norm, const TensorDesc& input, const TensorDesc& output) {
  KernelCase result{norm, {input}};
  const TensorDesc channels = cases::dense({output.sizes[1]});
  if (norm.weight) result.operands.push_back(channels);
  if (norm.bias) result.operands.push_back(channels);
  result.operands.push_back(output);
  return result;
}

KernelCase normalize(const GroupNorm& norm, const TensorDesc& desc) {
  return normalize(norm, desc, desc);
}

}  // namespace

std::vector<KernelCase> group_norm_test_cases() {
  using namespace cases;
  std::vector<KernelCase> list;
  for (int affine = 0; affine < 4; ++affine) {
    for (int64_t groups : {1, 2, 3, 6}) {
      GroupNorm norm{.groups = groups, .weight = (affine & 1) != 0, .bias = (affine & 2) != 0};
      for (int64_t size : {1, 3, 7}) {
        list.push_back(normalize(norm, dense({2, 6, size, size + 1})));
        list.push_back(normalize(norm, image(2, 6, size, size + 1)));
        list.push_back(
            normalize(norm, image(2, 6, size, size + 1, 9), image(2, 6, size, size + 1)));
      }
      list.push_back(normalize(norm, dense({3, 6})));
      list.push_back(normalize(norm, dense({3, 6, 50})));
      list.push_back(normalize(norm, dense({1, 12, 2, 3, 4})));
      list.push_back(normalize(norm, dense({0, 6, 3, 3})));
      list.push_back(normalize(norm, image(2, 96, 5, 3)));
      list.push_back(normalize(norm, image(1, 78, 9, 17)));
    }
  }
  list.push_back(normalize({.groups = 3, .bias = true}, dense({1, 6, 70, 65})));
  list.push_back(normalize({.groups = 3, .bias = true}, image(1, 18, 20, 25)));
  // Layouts that may have no kernel.
  list.push_back(normalize({.groups = 2}, dense({2, 6, 3, 5}), image(2, 6, 3, 5)));
  const TensorDesc window{
      .dtype = float32(), .sizes = {2, 6, 3, 5}, .strides = {400, 60, 10, 1}, .offset = 3};
  list.push_back(normalize({.groups = 2}, window, dense({2, 6, 3, 5})));
  for (int kind = 0; kind <= static_cast<int>(ActivationKind::kGeluTanh); ++kind) {
    const GroupNorm norm{
        .groups = 2, .weight = true, .activation = {static_cast<ActivationKind>(kind), 0.1f, 0.7f}};
    list.push_back(normalize(norm, image(1, 20, 3, 3)));
    list.push_back(normalize(norm, dense({1, 20, 3, 3})));
  }
  return list;
}

std::vector<KernelCase> group_norm_bench_cases() {
  using namespace cases;
  const GroupNorm norm{.groups = 32, .weight = true, .bias = true};
  GroupNorm silu = norm;
  silu.activation.kind = ActivationKind::kSilu;
  return {normalize(norm, image(1, 320, 32, 32)), normalize(norm, dense({1, 320, 32, 32})),
          normalize(silu, image(1, 320, 32, 32)), normalize(silu, dense({1, 320, 32, 32}))};
}

}  // namespace nimble
