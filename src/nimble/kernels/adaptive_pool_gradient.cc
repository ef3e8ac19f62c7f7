#include "nimble/kernels/families.h"
#include "nimble/kernels/pool_gradient.h"

namespace nimble {
namespace {

Covering window_of(int64_t index, int64_t input, int64_t output) {
  return {index * input / output, ((index + 1) * input + output - 1) / output};
}

std::vector<Covering> covering(int64_t input, int64_t output) {
  std::vector<Covering> list(static_cast<size_t>(input));
  for (int64_t o = 0; o < output; ++o) {
    const Covering window = window_of(o, input, output);
    for (int64_t i = window.begin; i < window.end; ++i) {
      Covering& over = list[static_cast<size_t>(i)];
      if (over.end == 0) over.begin = o;
      over.end = o + 1;
    }
  }
  return list;
}

}  // namespace

std::vector<KernelPtr> adaptive_pool_gradient_candidates(const AdaptivePoolGradient&,
                                                         std::span<const TensorDesc> operands) {
  for (const TensorDesc& desc : operands)
    if (desc.sizes.size() != 4 || desc.dtype.name != "float32" || !ImageRows(desc).channels_last())
      return {};
  const std::vector<int64_t>& result = operands[0].sizes;
  const std::vector<int64_t>& input = operands[1].sizes;
  PoolGradientPlan plan;
  plan.result = ImageRows(operands[0]);
  plan.input = ImageRows(operands[1]);
  plan.rows = covering(input[2], result[2]);
  plan.columns = covering(input[3], result[3]);
  for (int64_t y = 0; y < result[2]; ++y) {
    for (int64_t x = 0; x < result[3]; ++x) {
      const Covering rows = window_of(y, input[2], result[2]);
      const Covering columns = window_of(x, input[3], result[3]);
      plan.scales.push_back(
          1.0f / static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin)));
    }
  }
  return {make_pool_gradient(std::move(plan))};
}

}  // namespace nimble
