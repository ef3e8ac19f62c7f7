#include <cmath>
#include <limits>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

void max_pool_indices_reference(const MaxPoolIndices& attributes,
                                std::span<const TensorDesc> operands, void* const* data) {
  const Pool& pool = attributes.pool;
  const TensorDesc& input = operands[0];
  for_each_index(operands[1].sizes, [&](const std::vector<int64_t>& at) {
    float best = -std::numeric_limits<float>::infinity();
    int64_t index = -1;
    for (int64_t ky = 0; ky < pool.kernel[0]; ++ky) {
      for (int64_t kx = 0; kx < pool.kernel[1]; ++kx) {
        const int64_t y = at[2] * pool.stride[0] - pool.padding[0] + ky * pool.dilation[0];
        const int64_t x = at[3] * pool.stride[1] - pool.padding[1] + kx * pool.dilation[1];
        if (y < 0 || x < 0 || y >= input.sizes[2] || x >= input.sizes[3]) continue;
        const float value = static_cast<const float*>(data[0])[place(input, {at[0], at[1], y, x})];
        if (index >= 0 && !(value > best) && !std::isnan(value)) continue;
        best = value;
        index = y * input.sizes[3] + x;
      }
    }
    static_cast<float*>(data[1])[place(operands[1], at)] = best;
    static_cast<int64_t*>(data[2])[place(operands[2], at)] = index;
  });
}

namespace {

std::vector<KernelCase> with_indices(const std::vector<KernelCase>& pools) {
  std::vector<KernelCase> list;
  for (const KernelCase& from : pools) {
    Pool pool = std::get<Pool>(from.attributes);
    if (pool.kind != Pool::Kind::kMax) continue;
    pool.epilogue = {};
    TensorDesc indices = from.operands.back();
    indices.dtype = cases::int64();
    list.push_back({MaxPoolIndices{pool}, {from.operands.front(), from.operands.back(), indices}});
  }
  return list;
}

}  // namespace

std::vector<KernelCase> max_pool_indices_test_cases() {
  return with_indices(pool_test_cases());
}

std::vector<KernelCase> max_pool_indices_bench_cases() {
  return with_indices(pool_bench_cases());
}

}  // namespace nimble
