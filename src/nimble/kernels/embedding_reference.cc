#include <array>

#include "nimble/base/error.h"
#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

void embedding_reference(const Embedding&, std::span<const TensorDesc> operands,
                         void* const* data) {
  const TensorDesc* indices = &operands[0];
  const TensorDesc* weight = &operands[1];
  const TensorDesc* output = &operands[2];
  for_each_index(output->sizes, [&](const std::vector<int64_t>& at) {
    const std::vector<int64_t> outer(at.begin(), at.end() - 1);
    const int64_t from = place(*indices, outer);
    const int64_t index = indices->dtype.bytes == 8 ? static_cast<const int64_t*>(data[0])[from]
                                                    : static_cast<const int32_t*>(data[0])[from];
    if (index < 0 || index >= weight->sizes[0])
      throw UserError(message("index out of range: got ", index, ", the table has ",
                              weight->sizes[0], " rows"));
    static_cast<float*>(data[2])[place(*output, at)] =
        static_cast<const float*>(data[1])[place(*weight, {index, at.back()})];
  });
}

namespace {

KernelCase look_up(const TensorDesc& indices, const TensorDesc& weight) {
  std::vector<int64_t> sizes = indices.sizes;
  sizes.push_back(weight.sizes[1]);
  return {Embedding{}, {indices, weight, cases::dense(sizes)}};
}

}  // namespace

std::vector<KernelCase> embedding_test_cases() {
  using namespace cases;
  std::vector<KernelCase> list;
  for (const DType& dtype : {int64(), int32()}) {
    for (int64_t size : {1, 3, 16, 33}) {
      list.push_back(look_up(dense({}, dtype), dense({7, size})));
      list.push_back(look_up(dense({5}, dtype), dense({7, size})));
      list.push_back(look_up(dense({2, 9}, dtype), dense({11, size})));
      list.push_back(look_up(dense({2, 3, 4}, dtype), dense({8, size})));
    }
    list.push_back(look_up(dense({0, 4}, dtype), dense({8, 5})));
    list.push_back(look_up(dense({3, 4}, dtype), dense({8, 0})));
    const TensorDesc window{.dtype = dtype, .sizes = {3, 4}, .strides = {1, 5}, .offset = 2};
    const TensorDesc broadcast{.dtype = dtype, .sizes = {3, 4}, .strides = {0, 1}};
    const TensorDesc columns{.dtype = float32(), .sizes = {8, 5}, .strides = {1, 8}};
    list.push_back(look_up(window, dense({8, 5})));
    list.push_back(look_up(broadcast, dense({8, 5})));
    list.push_back(look_up(window, columns));
    const TensorDesc permuted{.dtype = float32(), .sizes = {3, 4, 5}, .strides = {9, 30, 1}};
    list.push_back({Embedding{}, {window, dense({8, 5}), permuted}});
    const TensorDesc last_slow{.dtype = float32(), .sizes = {3, 4, 5}, .strides = {4, 1, 12}};
    list.push_back({Embedding{}, {window, dense({8, 5}), last_slow}});
  }
  return list;
}

std::vector<KernelCase> embedding_bench_cases() {
  using namespace cases;
  return {look_up(dense({1, 128}, int64()), dense({30522, 768})),
          look_up(dense({1, 1024}, int64()), dense({50257, 768}))};
}

}  // namespace nimble
