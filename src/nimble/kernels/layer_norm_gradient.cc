#include "nimble/kernels/families.h"
#include "nimble/kernels/whole_reductions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/layer_norm_gradient.cc"
#include <hwy/foreach_target.h>  // first of the per-target headers

#include <hwy/highway.h>

#include "nimble/kernels/vector_rows-inl.h"

#ifndef NIMBLE_KERNELS_LAYER_NORM_GRADIENT_SHARED_
#define NIMBLE_KERNELS_LAYER_NORM_GRADIENT_SHARED_
namespace nimble {

struct LayerNormGradientPlan {
  WholeReductions reductions;
  int64_t size = 1;
  bool weight = false;
};

}  // namespace nimble
#endif

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

class LayerNormGradientRows final : public Kernel {
 public:
  explicit LayerNormGradientRows(LayerNormGradientPlan plan) : plan_(std::move(plan)) {}
  std::string name() const override { return "layer_norm_gradient.rows"; }
  Work work() const override { return plan_.reductions.work(); }

  void run(const KernelArguments& arguments) const override {
    const auto operand = [&](size_t i) { return static_cast<float*>(arguments.operands[i]); };
    const float* weight = plan_.weight ? operand(4) : nullptr;
    float* output = operand(plan_.weight ? 5 : 4);
    plan_.reductions.for_each_run(
        arguments.part, [&](int64_t offset, int64_t /*of the output: the same*/, int64_t count) {
          for (int64_t i = 0; i < count; ++i, offset += plan_.size) {
            const int64_t at = offset / plan_.size;
            const Row row{operand(0) + offset, operand(1) + offset, weight,
                          operand(2)[at],      operand(3)[at],      output + offset};
            if (weight)
              compute<true>(row);
            else
              compute<false>(row);
          }
        });
  }

 private:
  struct Row {
    const float* gradient;
    const float* input;
    const float* weight;
    float mean;
    float inverse;  // of the deviation
    float* output;
  };

  template <bool kWeight>
  void compute(const Row& row) const {
    const FloatTag d;
    const auto size = static_cast<size_t>(plan_.size);
    const auto mean = hn::Set(d, row.mean);
    const auto inverse = hn::Set(d, row.inverse);
    const auto weighted = [&](size_t i, size_t count, auto whole) HWY_ATTR {
      auto g = load_part(row.gradient + i, count, whole);
      if constexpr (kWeight) g = hn::Mul(g, load_part(row.weight + i, count, whole));
      return g;
    };
    const auto normalised = [&](size_t i, size_t count, auto whole) HWY_ATTR {
      return hn::Mul(hn::Sub(load_part(row.input + i, count, whole), mean), inverse);
    };
    // Two sums of each, as an addition takes a while. Gradients behind the end are 0.
    FloatVector sums[2] = {hn::Zero(d), hn::Zero(d)};
    FloatVector products[2] = {hn::Zero(d), hn::Zero(d)};
    for_each_vector(size, [&](size_t i, size_t count, auto whole) HWY_ATTR {
      const size_t which = i / kLanes % 2;
      const auto g = weighted(i, count, whole);
      sums[which] = hn::Add(sums[which], g);
      products[which] = hn::MulAdd(g, normalised(i, count, whole), products[which]);
    });
    const auto share = hn::Set(d, 1.0f / static_cast<float>(plan_.size));
    const auto sum = hn::Mul(hn::SumOfLanes(d, hn::Add(sums[0], sums[1])), share);
    const auto product = hn::Mul(hn::SumOfLanes(d, hn::Add(products[0], products[1])), share);
    for_each_vector(size, [&](size_t i, size_t count, auto whole) HWY_ATTR {
      const auto rest = hn::Sub(weighted(i, count, whole), sum);
      const auto result = hn::NegMulAdd(normalised(i, count, whole), product, rest);
      store_part(hn::Mul(result, inverse), row.output + i, count, whole);
    });
  }

  LayerNormGradientPlan plan_;
};

KernelPtr make_layer_norm_gradient(const LayerNormGradientPlan& plan) {
  return std::make_shared<LayerNormGradientRows>(plan);
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {

HWY_EXPORT(make_layer_norm_gradient);

std::vector<KernelPtr> layer_norm_gradient_candidates(const LayerNormGradient& attributes,
                                                      std::span<const TensorDesc> operands) {
  const TensorDesc& output = operands.back();
  for (const TensorDesc& desc : operands)
    if (desc.dtype.name != "float32" || !desc.is_row_major()) return {};
  std::vector<bool> reduced(output.sizes.size());
  LayerNormGradientPlan plan{.reductions = WholeReductions(output, output, reduced),
                             .weight = attributes.weight};
  for (size_t d = output.sizes.size() - static_cast<size_t>(attributes.dims);
       d < output.sizes.size(); ++d) {
    reduced[d] = true;
    plan.size *= output.sizes[d];
  }
  plan.reductions = WholeReductions(output, output, reduced);
  return {HWY_DYNAMIC_DISPATCH(make_layer_norm_gradient)(plan)};
}

}  // namespace nimble
#endif
