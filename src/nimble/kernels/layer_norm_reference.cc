#include <cmath>

#include "nimble/kernels/activation_reference.h"
#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

void layer_norm_reference(const LayerNorm& attributes, std::span<const TensorDesc> operands,
                          void* const* data) {
  const auto element = [&](size_t operand, const std::vector<int64_t>& index) -> float& {
    return static_cast<float*>(data[operand])[place(operands[operand], index)];
  };
  const size_t output = operands.size() - (attributes.statistics ? 3 : 1);
  int64_t next = 0;  // of the statistics
  const std::vector<int64_t>& sizes = operands[output].sizes;
  const auto split = sizes.end() - attributes.dims;
  const std::vector<int64_t> inner_sizes(split, sizes.end());

  for_each_index({sizes.begin(), split}, [&](const std::vector<int64_t>& outer) {
    const auto joined = [&](const std::vector<int64_t>& inner) {
      std::vector<int64_t> index = outer;
      index.insert(index.end(), inner.begin(), inner.end());
      return index;
    };
    double count = 0;
    double mean = 0;
    for_each_index(inner_sizes, [&](const auto& inner) {
      mean += element(0, joined(inner));
      ++count;
    });
    mean = attributes.rms ? 0 : mean / count;
    double variance = 0;
    for_each_index(inner_sizes, [&](const auto& inner) {
      const double distance = element(0, joined(inner)) - mean;
      variance += distance * distance / count;
    });
    for_each_index(inner_sizes, [&](const auto& inner) {
      double x = (element(0, joined(inner)) - mean) / std::sqrt(variance + attributes.epsilon);
      if (attributes.weight) x *= element(1, inner);
      if (attributes.bias) x += element(attributes.weight ? 2 : 1, inner);
      element(output, joined(inner)) =
          reference_activation(attributes.activation, static_cast<float>(x));
    });
    if (!attributes.statistics) return;
    static_cast<float*>(data[output + 1])[next] = static_cast<float>(mean);
    static_cast<float*>(data[output + 2])[next++] =
        static_cast<float>(1 / std::sqrt(variance + attributes.epsilon));
  });
}

namespace {

KernelCase normalize(const LayerNorm& norm, const TensorDesc& input, const TensorDesc& output) {
  const std::vector<int64_t> inner(output.sizes.end() - norm.dims, output.sizes.end());
  KernelCase result{norm, {input}};
  if (norm.weight) result.operands.push_back(cases::dense(inner));
  if (norm.bias) result.operands.push_back(cases::dense(inner));
  result.operands.push_back(output);
  if (norm.statistics) {
    std::vector<int64_t> outer(output.sizes.begin(), output.sizes.end() - norm.dims);
    outer.resize(output.sizes.size(), 1);
    result.operands.insert(result.operands.end(), 2, cases::dense(outer));
  }
  return result;
}

}  // namespace

std::vector<KernelCase> layer_norm_test_cases() {
  using namespace cases;
  std::vector<KernelCase> list;
  const auto add = [&](const LayerNorm& norm, const TensorDesc& desc) {
    list.push_back(normalize(norm, desc, desc));
  };
  for (bool rms : {false, true}) {
    for (int64_t size : {1, 2, 7, 16, 17, 64, 65, 100, 768})
      for (int affine = 0; affine < 4; ++affine)
        add({.weight = (affine & 1) != 0, .bias = (affine & 2) != 0, .rms = rms}, dense({5, size}));
    const LayerNorm affine{.epsilon = 1e-3, .weight = true, .bias = true, .rms = rms};
    for (int64_t dims : {1, 2, 3, 4, 5}) {
      LayerNorm norm = affine;
      norm.dims = dims;
      add(norm, dense({3, 2, 4, 5, 7}));
      if (dims <= 4) {
        add(norm, dense({2, 5, 3, 7}));
        add(norm, image(2, 5, 3, 7));
        list.push_back(normalize(norm, image(2, 5, 3, 7), dense({2, 5, 3, 7})));
        list.push_back(normalize(norm, dense({2, 5, 3, 7}), image(2, 5, 3, 7)));
      }
      if (dims <= 3) {
        add(norm, dense({1, 9, 40}));
        const TensorDesc window{
            .dtype = float32(), .sizes = {4, 3, 9}, .strides = {80, 20, 1}, .offset = 5};
        const TensorDesc columns{.dtype = float32(), .sizes = {4, 3, 9}, .strides = {1, 4, 12}};
        const TensorDesc broadcast{.dtype = float32(), .sizes = {4, 3, 9}, .strides = {9, 0, 1}};
        list.push_back(normalize(norm, window, dense({4, 3, 9})));
        list.push_back(normalize(norm, broadcast, dense({4, 3, 9})));
        list.push_back(normalize(norm, dense({4, 3, 9}), window));
        list.push_back(normalize(norm, columns, window));
        list.push_back(normalize(norm, window, columns));
      }
    }
    add(affine, dense({9}));
    add(affine, dense({0, 9}));
    add(affine, dense({4, 0}));
  }
  KernelCase strided_weight =
      normalize({.dims = 2, .weight = true, .bias = true}, dense({3, 4, 5}), dense({3, 4, 5}));
  strided_weight.operands[1].strides = {1, 4};
  strided_weight.operands[2].strides = {0, 2};
  list.push_back(strided_weight);
  for (int64_t dims : {1, 2, 3}) {
    const LayerNorm norm{.dims = dims, .weight = true, .bias = true, .statistics = true};
    add(norm, dense({3, 4, 17}));
    add(norm, dense({2, 3, 4, 5}));
    list.push_back(normalize(norm, image(2, 5, 3, 7), dense({2, 5, 3, 7})));
  }
  for (int kind = 0; kind <= static_cast<int>(ActivationKind::kGeluTanh); ++kind)
    add({.weight = true, .activation = {static_cast<ActivationKind>(kind), 0.1f, 0.7f}},
        dense({3, 37}));
  return list;
}

std::vector<KernelCase> layer_norm_bench_cases() {
  using namespace cases;
  const LayerNorm norm{.weight = true, .bias = true};
  LayerNorm gelu = norm;
  gelu.activation.kind = ActivationKind::kGeluErf;
  const auto same = [](const LayerNorm& n, const TensorDesc& desc) {
    return normalize(n, desc, desc);
  };
  LayerNorm training = norm;
  training.statistics = true;
  return {same(training, dense({8, 128, 768})),
          same(norm, dense({1, 128, 768})),
          same(norm, dense({1, 197, 768})),
          same(norm, dense({1, 56, 56, 96})),
          same({.weight = true, .rms = true}, dense({128, 768})),
          same(gelu, dense({1, 128, 768}))};
}

}  // namespace nimble
