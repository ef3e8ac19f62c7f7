#include <cmath>
#include <limits>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

void softmax_reference(const Softmax& attributes, std::span<const TensorDesc> operands,
                       void* const* data) {
  const TensorDesc& input = operands[0];
  const TensorDesc& output = operands[1];
  const float* from = static_cast<const float*>(data[0]);
  float* to = static_cast<float*>(data[1]);
  const auto rank = static_cast<int64_t>(output.sizes.size());
  const auto dim = static_cast<size_t>(attributes.dim < 0 ? attributes.dim + rank : attributes.dim);
  std::vector<int64_t> outer = output.sizes;
  int64_t size = 1;
  if (rank > 0) std::swap(size, outer[dim]);
  const int64_t input_stride = rank > 0 ? input.strides[dim] : 0;
  const int64_t output_stride = rank > 0 ? output.strides[dim] : 0;
  if (size == 0) return;

  for_each_index(outer, [&](const std::vector<int64_t>& index) {
    const float* x = from + place(input, index);
    float* y = to + place(output, index);
    double max = -std::numeric_limits<double>::infinity();
    for (int64_t k = 0; k < size; ++k) max = std::fmax(max, x[k * input_stride]);
    bool none = attributes.safe;
    for (int64_t k = 0; k < size; ++k) none = none && x[k * input_stride] == -INFINITY;
    double sum = 0;
    for (int64_t k = 0; k < size; ++k) sum += std::exp(x[k * input_stride] - max);
    for (int64_t k = 0; k < size; ++k) {
      const double shifted = x[k * input_stride] - max;
      const double y_k = attributes.log ? shifted - std::log(sum) : std::exp(shifted) / sum;
      y[k * output_stride] = none ? 0 : static_cast<float>(y_k);
    }
  });
}

namespace {

KernelCase same(const Softmax& softmax, const TensorDesc& desc) {
  return {softmax, {desc, desc}};
}

}  // namespace

std::vector<KernelCase> softmax_test_cases() {
  using namespace cases;
  std::vector<KernelCase> list;
  for (bool log : {false, true}) {
    list.push_back(same({.dim = 0, .log = log}, dense({})));
    for (int64_t size : {1, 2, 3, 7, 8, 15, 16, 17, 33, 100}) {
      list.push_back(same({.dim = 0, .log = log}, dense({size})));
      list.push_back(same({.dim = -1, .log = log}, dense({5, size})));
      list.push_back(same({.dim = 0, .log = log}, dense({size, 5})));
      list.push_back(same({.dim = 1, .log = log}, dense({3, size, 19})));
    }
    for (int64_t dim : {0, 1, 2, 3}) {
      list.push_back(same({.dim = dim, .log = log}, dense({2, 5, 3, 7})));
      list.push_back(same({.dim = dim, .log = log}, image(2, 5, 3, 7)));
      list.push_back(same({.dim = dim, .log = log}, image(2, 21, 5, 4, 24)));
      list.push_back({Softmax{.dim = dim, .log = log}, {dense({2, 5, 3, 7}), image(2, 5, 3, 7)}});
      list.push_back({Softmax{.dim = dim, .log = log}, {image(2, 5, 3, 7), dense({2, 5, 3, 7})}});
      list.push_back(same({.dim = dim, .log = log}, dense({1, 33, 1, 18})));
      list.push_back(same({.dim = dim, .log = log}, dense({2, 0, 3, 7})));
    }
    for (int64_t dim : {0, 2, 4})
      list.push_back(same({.dim = dim, .log = log}, dense({2, 3, 2, 4, 5})));
    // Windows and broadcasts.
    const TensorDesc window{
        .dtype = float32(), .sizes = {4, 3, 9}, .strides = {80, 20, 2}, .offset = 5};
    const TensorDesc broadcast{.dtype = float32(), .sizes = {4, 3, 9}, .strides = {9, 0, 1}};
    for (int64_t dim : {0, 1, 2}) {
      list.push_back({Softmax{.dim = dim, .log = log}, {window, dense({4, 3, 9})}});
      list.push_back({Softmax{.dim = dim, .log = log}, {dense({4, 3, 9}), window}});
      list.push_back({Softmax{.dim = dim, .log = log}, {broadcast, dense({4, 3, 9})}});
    }
  }
  for (int64_t dim : {0, 1, 2}) list.push_back(same({.dim = dim, .safe = true}, dense({3, 17, 5})));
  return list;
}

std::vector<KernelCase> softmax_bench_cases() {
  using namespace cases;
  return {same({.dim = -1}, dense({12 * 128, 128})), same({.dim = -1}, dense({1, 1000})),
          same({.dim = 1}, image(1, 21, 64, 64)), same({.dim = 1}, dense({1, 21, 64, 64})),
          same({.dim = -1, .log = true}, dense({128, 1000}))};
}

}  // namespace nimble
