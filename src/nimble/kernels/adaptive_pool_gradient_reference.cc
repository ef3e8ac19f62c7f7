#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

void adaptive_pool_gradient_reference(const AdaptivePoolGradient&,
                                      std::span<const TensorDesc> operands, void* const* data) {
  const TensorDesc& result = operands[0];
  const TensorDesc& input = operands[1];
  float* to = static_cast<float*>(data[1]);
  for_each_index(input.sizes, [&](const auto& at) { to[place(input, at)] = 0; });
  for_each_index(result.sizes, [&](const std::vector<int64_t>& at) {
    const auto begin = [&](size_t d) { return at[d] * input.sizes[d] / result.sizes[d]; };
    const auto end = [&](size_t d) {
      return ((at[d] + 1) * input.sizes[d] + result.sizes[d] - 1) / result.sizes[d];
    };
    const float share = static_cast<const float*>(data[0])[place(result, at)] /
                        static_cast<float>((end(2) - begin(2)) * (end(3) - begin(3)));
    for (int64_t y = begin(2); y < end(2); ++y)
      for (int64_t x = begin(3); x < end(3); ++x) to[place(input, {at[0], at[1], y, x})] += share;
  });
}

std::vector<KernelCase> adaptive_pool_gradient_test_cases() {
  using cases::image;
  std::vector<KernelCase> list;
  for (int64_t size : {1, 2, 5, 7})
    for (int64_t out : {1, 2, 3, 7, 9})
      for (int64_t channels : {1, 16, 19})
        list.push_back(
            {AdaptivePoolGradient{},
             {image(2, channels, out, out, channels + 3), image(2, channels, size, size + 1)}});
  return list;
}

std::vector<KernelCase> adaptive_pool_gradient_bench_cases() {
  using cases::image;
  return {{AdaptivePoolGradient{}, {image(32, 512, 7, 7), image(32, 512, 14, 14)}},
          {AdaptivePoolGradient{}, {image(32, 2048, 1, 1), image(32, 2048, 4, 4)}}};
}

}  // namespace nimble
