#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "nimble/kernels/families.h"
#include "nimble/kernels/whole_reductions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/softmax.cc"
#include <hwy/foreach_target.h>  // first of the per-target headers

#include <hwy/highway.h>

#include "nimble/kernels/vector_math-inl.h"
#include "nimble/kernels/vector_rows-inl.h"

#ifndef NIMBLE_KERNELS_SOFTMAX_SHARED_
#define NIMBLE_KERNELS_SOFTMAX_SHARED_
namespace nimble {

struct SoftmaxPlan {
  WholeReductions reductions;
  int64_t size = 1;
  int64_t input_stride = 1;  // along the reduced dim
  int64_t output_stride = 1;
  bool log = false;
  bool safe = false;
};

}  // namespace nimble
#endif

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

// A reduction after the other, with vectors along it.
class SoftmaxRows final : public Kernel {
 public:
  explicit SoftmaxRows(SoftmaxPlan plan) : plan_(std::move(plan)) {}
  std::string name() const override { return plan_.log ? "log_softmax.rows" : "softmax.rows"; }
  Work work() const override { return plan_.reductions.work(); }
  size_t scratch_bytes(const Part&) const override {
    return gathers() ? static_cast<size_t>(plan_.size) * sizeof(float) : 0;
  }

  void run(const KernelArguments& arguments) const override {
    const float* input = static_cast<const float*>(arguments.operands[0]);
    float* output = static_cast<float*>(arguments.operands[1]);
    float* scratch = reinterpret_cast<float*>(arguments.scratch);
    const size_t size = static_cast<size_t>(plan_.size);
    const int64_t input_step = plan_.reductions.step()[0];
    const int64_t output_step = plan_.reductions.step()[1];
    plan_.reductions.for_each_run(arguments.part,
                                  [&](int64_t input_offset, int64_t output_offset, int64_t count) {
                                    for (int64_t i = 0; i < count; ++i) {
                                      const float* from = input + input_offset + i * input_step;
                                      float* to = output + output_offset + i * output_step;
                                      if (!gathers()) {
                                        compute(from, to, size);
                                        continue;
                                      }
                                      for (int64_t k = 0; k < plan_.size; ++k)
                                        scratch[k] = from[k * plan_.input_stride];
                                      compute(scratch, scratch, size);
                                      for (int64_t k = 0; k < plan_.size; ++k)
                                        to[k * plan_.output_stride] = scratch[k];
                                    }
                                  });
  }

 private:
  bool gathers() const { return plan_.input_stride != 1 || plan_.output_stride != 1; }

  void compute(const float* from, float* to, size_t size) const {
    const FloatTag d;
    const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
    auto largest = lowest;
    for_each_vector(size, [&](size_t i, size_t count, auto whole) HWY_ATTR {
      const auto x = fill_part(load_part(from + i, count, whole), lowest, count, whole);
      largest = hn::Max(largest, x);
    });
    // A NaN need not be seen here: its exponential makes the sum NaN.
    const auto max = hn::MaxOfLanes(d, largest);
    if (plan_.safe && std::isinf(hn::GetLane(max)) &&
        std::all_of(from, from + size, [](float x) { return x == -INFINITY; })) {
      std::fill_n(to, size, 0.0f);
      return;
    }
    auto sum = hn::Zero(d);
    for_each_vector(size, [&](size_t i, size_t count, auto whole) HWY_ATTR {
      const auto x = load_part(from + i, count, whole);
      const auto e = exp_of_nonpositive(hn::Sub(x, max));
      sum = hn::Add(sum, fill_part(e, hn::Zero(d), count, whole));
      if (!plan_.log) store_part(e, to + i, count, whole);
    });
    const float total = hn::GetLane(hn::SumOfLanes(d, sum));
    if (plan_.log) {
      const auto log_sum = hn::Set(d, std::log(total));
      for_each_vector(size, [&](size_t i, size_t count, auto whole) HWY_ATTR {
        const auto x = load_part(from + i, count, whole);
        store_part(hn::Sub(hn::Sub(x, max), log_sum), to + i, count, whole);
      });
    } else {
      const auto scale = hn::Set(d, 1 / total);
      for_each_vector(size, [&](size_t i, size_t count, auto whole) HWY_ATTR {
        store_part(hn::Mul(load_part(to + i, count, whole), scale), to + i, count, whole);
      });
    }
  }

  SoftmaxPlan plan_;
};

// Reductions that are neighbours in memory, one in each lane.
class SoftmaxLanes final : public Kernel {
 public:
  explicit SoftmaxLanes(SoftmaxPlan plan) : plan_(std::move(plan)) {}
  std::string name() const override { return plan_.log ? "log_softmax.lanes" : "softmax.lanes"; }
  Work work() const override { return plan_.reductions.work(); }

  void run(const KernelArguments& arguments) const override {
    const float* input = static_cast<const float*>(arguments.operands[0]);
    float* output = static_cast<float*>(arguments.operands[1]);
    plan_.reductions.for_each_run(
        arguments.part, [&](int64_t input_offset, int64_t output_offset, int64_t count) {
          const float* from = input + input_offset;
          float* to = output + output_offset;
          for_each_vector(static_cast<size_t>(count), [&](size_t i, size_t lanes, auto whole) {
            compute(from + i, to + i, lanes, whole);
          });
        });
  }

 private:
  template <class Whole>
  void compute(const float* from, float* to, size_t lanes, Whole whole) const {
    const FloatTag d;
    auto max = hn::Set(d, -std::numeric_limits<float>::infinity());
    for (int64_t k = 0; k < plan_.size; ++k)
      max = hn::Max(max, load_part(from + k * plan_.input_stride, lanes, whole));
    auto sum = hn::Zero(d);
    for (int64_t k = 0; k < plan_.size; ++k) {
      const auto x = load_part(from + k * plan_.input_stride, lanes, whole);
      const auto e = exp_of_nonpositive(hn::Sub(x, max));
      sum = hn::Add(sum, e);
      if (!plan_.log) store_part(e, to + k * plan_.output_stride, lanes, whole);
    }
    if (plan_.log) {
      const auto log_sum = math::log(d, sum);
      for (int64_t k = 0; k < plan_.size; ++k) {
        const auto x = load_part(from + k * plan_.input_stride, lanes, whole);
        store_part(hn::Sub(hn::Sub(x, max), log_sum), to + k * plan_.output_stride, lanes, whole);
      }
    } else {
      const auto scale = hn::Div(hn::Set(d, 1.0f), sum);
      for (int64_t k = 0; k < plan_.size; ++k) {
        float* at = to + k * plan_.output_stride;
        store_part(hn::Mul(load_part(at, lanes, whole), scale), at, lanes, whole);
      }
    }
  }

  SoftmaxPlan plan_;
};

KernelPtr make_softmax(const SoftmaxPlan& plan) {
  const bool along = plan.input_stride == 1 && plan.output_stride == 1;
  if (!along && !plan.safe && plan.reductions.side_by_side())
    return std::make_shared<SoftmaxLanes>(plan);
  return std::make_shared<SoftmaxRows>(plan);
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {

HWY_EXPORT(make_softmax);

std::vector<KernelPtr> softmax_candidates(const Softmax& attributes,
                                          std::span<const TensorDesc> operands) {
  const TensorDesc& input = operands[0];
  const TensorDesc& output = operands[1];
  if (input.dtype.name != "float32" || output.dtype.name != "float32") return {};
  const auto rank = static_cast<int64_t>(output.sizes.size());
  const auto dim = static_cast<size_t>(attributes.dim < 0 ? attributes.dim + rank : attributes.dim);
  std::vector<bool> reduced(output.sizes.size());
  SoftmaxPlan plan{.reductions = WholeReductions(input, output, reduced),
                   .log = attributes.log,
                   .safe = attributes.safe};
  if (rank > 0) {
    reduced[dim] = true;
    plan.reductions = WholeReductions(input, output, reduced);
    plan.size = output.sizes[dim];
    if (plan.size > 1) {
      plan.input_stride = input.strides[dim];
      plan.output_stride = output.strides[dim];
    }
  }
  return {HWY_DYNAMIC_DISPATCH(make_softmax)(plan)};
}

}  // namespace nimble
#endif
