#include <array>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/pool_spans.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {
namespace {

// A maximum's gradient goes to the pixel that its index names, if that is under the window or
// between its taps.
bool reaches(const Pool& pool, const std::vector<int64_t>& window, int64_t y, int64_t x) {
  const std::array<int64_t, 2> at = {y, x};
  for (size_t d : {0, 1}) {
    const int64_t begin = window[2 + d] * pool.stride[d] - pool.padding[d];
    if (at[d] < begin || at[d] > begin + (pool.kernel[d] - 1) * pool.dilation[d]) return false;
  }
  return true;
}

}  // namespace

void pool_gradient_reference(const PoolGradient& attributes, std::span<const TensorDesc> operands,
                             void* const* data) {
  const Pool& pool = attributes.pool;
  const TensorDesc& result = operands.front();
  const TensorDesc& input = operands.back();
  const int64_t height = input.sizes[2];
  const int64_t width = input.sizes[3];
  float* to = static_cast<float*>(data[operands.size() - 1]);
  for_each_index(input.sizes, [&](const auto& at) { to[place(input, at)] = 0; });
  for_each_index(result.sizes, [&](const std::vector<int64_t>& at) {
    const float gradient = static_cast<const float*>(data[0])[place(result, at)];
    if (pool.kind == Pool::Kind::kMax) {
      const int64_t index = static_cast<const int64_t*>(data[1])[place(operands[1], at)];
      const int64_t y = index / width;
      const int64_t x = index % width;
      if (index < 0 || y >= height || !reaches(pool, at, y, x)) return;
      to[place(input, {at[0], at[1], y, x})] += gradient;
      return;
    }
    const PoolSpan rows = pool_span(pool, 0, height, at[2]);
    const PoolSpan columns = pool_span(pool, 1, width, at[3]);
    for (int64_t y = rows.first; y < rows.first + rows.taps; ++y)
      for (int64_t x = columns.first; x < columns.first + columns.taps; ++x)
        to[place(input, {at[0], at[1], y, x})] += gradient * pool_scale(pool, rows, columns);
  });
}

namespace {

std::vector<KernelCase> gradients_of(const std::vector<KernelCase>& pools) {
  std::vector<KernelCase> list;
  for (const KernelCase& from : pools) {
    Pool pool = std::get<Pool>(from.attributes);
    pool.epilogue = {};
    KernelCase made{PoolGradient{pool}, {from.operands.back()}};
    if (pool.kind == Pool::Kind::kMax) {
      made.operands.push_back(from.operands.back());
      made.operands.back().dtype = cases::int64();
    }
    made.operands.push_back(from.operands.front());
    list.push_back(made);
  }
  return list;
}

}  // namespace

std::vector<KernelCase> pool_gradient_test_cases() {
  return gradients_of(pool_test_cases());
}

std::vector<KernelCase> pool_gradient_bench_cases() {
  return gradients_of(pool_bench_cases());
}

}  // namespace nimble
