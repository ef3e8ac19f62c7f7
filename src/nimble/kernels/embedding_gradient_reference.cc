#include <stdexcept>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

void embedding_gradient_reference(const EmbeddingGradient& attributes,
                                  std::span<const TensorDesc> operands, void* const* data) {
  const TensorDesc& output = operands[2];
  float* to = static_cast<float*>(data[2]);
  for_each_index(output.sizes, [&](const auto& at) { to[place(output, at)] = 0; });
  for_each_index(operands[0].sizes, [&](const std::vector<int64_t>& at) {
    const int64_t from = place(operands[1], {at.begin(), at.end() - 1});
    const int64_t index = operands[1].dtype.bytes == 8 ? static_cast<const int64_t*>(data[1])[from]
                                                       : static_cast<const int32_t*>(data[1])[from];
    if (index < 0 || index >= output.sizes[0]) throw std::out_of_range("index");
    if (index == attributes.padding_index) return;
    to[place(output, {index, at.back()})] +=
        static_cast<const float*>(data[0])[place(operands[0], at)];
  });
}

// Indices of a test are 0 to 6.
std::vector<KernelCase> embedding_gradient_test_cases() {
  using namespace cases;
  std::vector<KernelCase> list;
  for (const DType& dtype : {int64(), int32()})
    for (int64_t size : {1, 3, 16, 33})
      for (int64_t padding : {-1, 0, 2}) {
        const EmbeddingGradient attributes{.padding_index = padding};
        const TensorDesc slice{
            .dtype = float32(), .sizes = {9, size}, .strides = {size + 5, 1}, .offset = 2};
        list.push_back({attributes, {dense({size}), dense({}, dtype), dense({7, size})}});
        list.push_back({attributes, {dense({0, size}), dense({0}, dtype), dense({7, size})}});
        list.push_back({attributes, {dense({2, 9, size}), dense({2, 9}, dtype), slice}});
        const TensorDesc everywhere{
            .dtype = float32(), .sizes = {3, 4, size}, .strides = {0, size, 1}};
        list.push_back({attributes, {everywhere, dense({3, 4}, dtype), dense({8, size})}});
      }
  return list;
}

std::vector<KernelCase> embedding_gradient_bench_cases() {
  using namespace cases;
  return {
      {EmbeddingGradient{}, {dense({8, 128, 768}), dense({8, 128}, int64()), dense({30522, 768})}}};
}

}  // namespace nimble
