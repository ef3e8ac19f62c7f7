#include "nimble/kernels/families.h"
#include "nimble/kernels/whole_reductions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/softmax_gradient.cc"
#include <hwy/foreach_target.h>  // first of the per-target headers

#include <hwy/highway.h>

#include "nimble/kernels/vector_rows-inl.h"

#ifndef NIMBLE_KERNELS_SOFTMAX_GRADIENT_SHARED_
#define NIMBLE_KERNELS_SOFTMAX_GRADIENT_SHARED_
namespace nimble {

struct SoftmaxGradientPlan {
  WholeReductions reductions;
  int64_t size = 1;
  int64_t stride = 1;  // along the reduced dim, in all operands
  bool log = false;
};

}  // namespace nimble
#endif

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

class SoftmaxGradientRows final : public Kernel {
 public:
  explicit SoftmaxGradientRows(SoftmaxGradientPlan plan) : plan_(std::move(plan)) {}
  std::string name() const override { return "softmax_gradient.rows"; }
  Work work() const override { return plan_.reductions.work(); }
  size_t scratch_bytes(const Part&) const override {
    return gathers() ? 2 * static_cast<size_t>(plan_.size) * sizeof(float) : 0;
  }

  void run(const KernelArguments& arguments) const override {
    const float* gradient = static_cast<const float*>(arguments.operands[0]);
    const float* result = static_cast<const float*>(arguments.operands[1]);
    float* output = static_cast<float*>(arguments.operands[2]);
    float* scratch = reinterpret_cast<float*>(arguments.scratch);
    const int64_t step = plan_.reductions.step()[0];
    plan_.reductions.for_each_run(
        arguments.part, [&](int64_t offset, int64_t /*of the output: the same*/, int64_t count) {
          for (int64_t i = 0; i < count; ++i, offset += step)
            run_one(gradient + offset, result + offset, output + offset, scratch);
        });
  }

 private:
  bool gathers() const { return plan_.stride != 1; }

  void run_one(const float* gradient, const float* result, float* output, float* scratch) const {
    if (!gathers()) return compute(gradient, result, output);
    float* gathered = scratch + plan_.size;
    for (int64_t k = 0; k < plan_.size; ++k) {
      scratch[k] = gradient[k * plan_.stride];
      gathered[k] = result[k * plan_.stride];
    }
    compute(scratch, gathered, scratch);
    for (int64_t k = 0; k < plan_.size; ++k) output[k * plan_.stride] = scratch[k];
  }

  void compute(const float* gradient, const float* result, float* to) const {
    const FloatTag d;
    const auto size = static_cast<size_t>(plan_.size);
    if (plan_.log) {
      const auto sum = hn::Set(d, sum_of_row(gradient, size));
      for_each_vector(size, [&](size_t i, size_t count, auto whole) HWY_ATTR {
        const auto probability = exp_of(d, load_part(result + i, count, whole));
        const auto g = load_part(gradient + i, count, whole);
        store_part(hn::NegMulAdd(probability, sum, g), to + i, count, whole);
      });
      return;
    }
    auto products = hn::Zero(d);
    for_each_vector(size, [&](size_t i, size_t count, auto whole) HWY_ATTR {
      const auto g = load_part(gradient + i, count, whole);
      const auto y = load_part(result + i, count, whole);
      products = hn::MulAdd(g, y, products);  // lanes behind the end are 0
    });
    const auto sum = hn::SumOfLanes(d, products);
    for_each_vector(size, [&](size_t i, size_t count, auto whole) HWY_ATTR {
      const auto g = load_part(gradient + i, count, whole);
      const auto y = load_part(result + i, count, whole);
      store_part(hn::Mul(hn::Sub(g, sum), y), to + i, count, whole);
    });
  }

  SoftmaxGradientPlan plan_;
};

KernelPtr make_softmax_gradient(const SoftmaxGradientPlan& plan) {
  return std::make_shared<SoftmaxGradientRows>(plan);
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {

HWY_EXPORT(make_softmax_gradient);

std::vector<KernelPtr> softmax_gradient_candidates(const SoftmaxGradient& attributes,
                                                   std::span<const TensorDesc> operands) {
  const TensorDesc& output = operands[2];
  const size_t rank = output.sizes.size();
  for (const TensorDesc& desc : operands) {
    if (desc.dtype.name != "float32" || desc.sizes != output.sizes) return {};
    for (size_t d = 0; d < rank; ++d)
      if (desc.sizes[d] != 1 && desc.strides[d] != output.strides[d]) return {};
  }
  if (rank == 0) return {};
  const auto dim = static_cast<size_t>(
      attributes.dim < 0 ? attributes.dim + static_cast<int64_t>(rank) : attributes.dim);
  std::vector<bool> reduced(rank);
  reduced[dim] = true;
  SoftmaxGradientPlan plan{.reductions = WholeReductions(output, output, reduced),
                           .size = output.sizes[dim],
                           .stride = output.sizes[dim] > 1 ? output.strides[dim] : 1,
                           .log = attributes.log};
  return {HWY_DYNAMIC_DISPATCH(make_softmax_gradient)(plan)};
}

}  // namespace nimble
#endif
