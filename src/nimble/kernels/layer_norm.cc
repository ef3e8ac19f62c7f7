#include <cmath>
#include <type_traits>

#include "nimble/kernels/families.h"
#include "nimble/kernels/whole_reductions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/layer_norm.cc"
#include <hwy/foreach_target.h>  // first of the per-target headers

#include <hwy/highway.h>

#include "nimble/kernels/vector_rows-inl.h"

#ifndef NIMBLE_KERNELS_LAYER_NORM_SHARED_
#define NIMBLE_KERNELS_LAYER_NORM_SHARED_
namespace nimble {

// A tensor's part over which is normalised.
struct NormalizedDims {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  bool packed = true;  // row-major without gaps
};

struct LayerNormPlan {
  LayerNorm attributes;
  WholeReductions reductions;
  int64_t size = 1;
  NormalizedDims input, weight, bias, output;
};

namespace {

// Calls visit(offset) for every element, the last dim fastest.
template <class Visit>
void for_each_offset(const NormalizedDims& dims, const Visit& visit, size_t d = 0,
                     int64_t offset = 0) {
  if (d == dims.sizes.size()) return visit(offset);
  for (int64_t i = 0; i < dims.sizes[d]; ++i)
    for_each_offset(dims, visit, d + 1, offset + i * dims.strides[d]);
}

}  // namespace
}  // namespace nimble
#endif

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

class LayerNormRows final : public Kernel {
 public:
  explicit LayerNormRows(LayerNormPlan plan) : plan_(std::move(plan)) {}
  std::string name() const override {
    return plan_.attributes.rms ? "layer_norm.rms" : "layer_norm.rows";
  }
  Work work() const override { return plan_.reductions.work(); }
  size_t scratch_bytes(const Part&) const override {
    const bool packed =
        plan_.input.packed && plan_.weight.packed && plan_.bias.packed && plan_.output.packed;
    return packed ? 0 : 3 * static_cast<size_t>(plan_.size) * sizeof(float);
  }

  void run(const KernelArguments& arguments) const override {
    const LayerNorm& attributes = plan_.attributes;
    // Whatever is not packed passes through here.
    float* row = reinterpret_cast<float*>(arguments.scratch);
    size_t operand = 0;
    const float* input = static_cast<const float*>(arguments.operands[operand++]);
    const float* weight = nullptr;
    const float* bias = nullptr;
    if (attributes.weight)
      weight = packed(plan_.weight, arguments.operands[operand++], row + plan_.size);
    if (attributes.bias)
      bias = packed(plan_.bias, arguments.operands[operand++], row + 2 * plan_.size);
    float* output = static_cast<float*>(arguments.operands[operand++]);
    float* means = nullptr;
    float* inverses = nullptr;
    if (attributes.statistics) {
      means = static_cast<float*>(arguments.operands[operand++]);
      inverses = static_cast<float*>(arguments.operands[operand]);
    }

    const int64_t input_step = plan_.reductions.step()[0];
    const int64_t output_step = plan_.reductions.step()[1];
    plan_.reductions.for_each_run(
        arguments.part, [&](int64_t input_offset, int64_t output_offset, int64_t count) {
          for (int64_t i = 0; i < count; ++i) {
            const float* from = packed(plan_.input, input + input_offset + i * input_step, row);
            float* to = output + output_offset + i * output_step;
            if (plan_.output.packed) {
              const Moments moments = compute(from, weight, bias, to);
              if (means == nullptr) continue;
              const int64_t at = (output_offset + i * output_step) / plan_.size;
              means[at] = moments.mean;
              inverses[at] = moments.inverse;
              continue;
            }
            compute(from, weight, bias, row);
            const float* next = row;
            for_each_offset(plan_.output, [&](int64_t offset) { to[offset] = *next++; });
          }
        });
  }

 private:
  static const float* packed(const NormalizedDims& dims, const void* data, float* room) {
    const float* from = static_cast<const float*>(data);
    if (dims.packed) return from;
    float* to = room;
    for_each_offset(dims, [&](int64_t offset) { *to++ = from[offset]; });
    return room;
  }

  struct Moments {
    float mean;
    float inverse;  // of the deviation
  };

  // Two passes over the row for its moments: it is in the cache, and nothing is lost.
  Moments compute(const float* from, const float* weight, const float* bias, float* to) const {
    const FloatTag d;
    const auto size = static_cast<size_t>(plan_.size);
    const auto count = static_cast<float>(plan_.size);
    const float mean = plan_.attributes.rms ? 0 : sum_of_row(from, size) / count;
    const double variance = sum_of_squares(from, size, mean) / count;
    const auto middle = hn::Set(d, mean);
    const auto inverse = static_cast<float>(1 / std::sqrt(variance + plan_.attributes.epsilon));
    const auto scale = hn::Set(d, inverse);
    const auto apply = [&](auto weighted, auto biased) HWY_ATTR {
      for_each_vector(size, [&](size_t i, size_t lanes, auto whole) HWY_ATTR {
        auto x = hn::Mul(hn::Sub(load_part(from + i, lanes, whole), middle), scale);
        if constexpr (weighted && biased) {
          x = hn::MulAdd(x, load_part(weight + i, lanes, whole), load_part(bias + i, lanes, whole));
        } else {
          if constexpr (weighted) x = hn::Mul(x, load_part(weight + i, lanes, whole));
          if constexpr (biased) x = hn::Add(x, load_part(bias + i, lanes, whole));
        }
        store_part(x, to + i, lanes, whole);
      });
    };
    if (weight && bias)
      apply(std::true_type(), std::true_type());
    else if (weight)
      apply(std::true_type(), std::false_type());
    else if (bias)
      apply(std::false_type(), std::true_type());
    else
      apply(std::false_type(), std::false_type());
    activate_row(d, plan_.attributes.activation, to, size);
    return {mean, inverse};
  }

  LayerNormPlan plan_;
};

KernelPtr make_layer_norm(const LayerNormPlan& plan) {
  return std::make_shared<LayerNormRows>(plan);
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {
namespace {

NormalizedDims last_dims(const TensorDesc& desc, size_t count) {
  NormalizedDims result;
  const size_t rank = desc.sizes.size();
  int64_t packed_stride = 1;
  for (size_t d = rank; d-- > rank - count;) {
    if (desc.sizes[d] == 1) continue;
    result.packed &= desc.strides[d] == packed_stride;
    packed_stride *= desc.sizes[d];
    result.sizes.insert(result.sizes.begin(), desc.sizes[d]);
    result.strides.insert(result.strides.begin(), desc.strides[d]);
  }
  return result;
}

}  // namespace

HWY_EXPORT(make_layer_norm);

std::vector<KernelPtr> layer_norm_candidates(const LayerNorm& attributes,
                                             std::span<const TensorDesc> operands) {
  for (const TensorDesc& operand : operands)
    if (operand.dtype.name != "float32") return {};
  const TensorDesc& input = operands.front();
  const TensorDesc& output = operands[operands.size() - (attributes.statistics ? 3 : 1)];
  if (attributes.statistics)
    for (const TensorDesc& desc : operands.last(3))
      if (attributes.rms || !desc.is_row_major()) return {};
  const auto dims = static_cast<size_t>(attributes.dims);
  std::vector<bool> reduced(output.sizes.size());
  std::fill(reduced.end() - attributes.dims, reduced.end(), true);

  LayerNormPlan plan{.attributes = attributes,
                     .reductions = WholeReductions(input, output, reduced),
                     .input = last_dims(input, dims),
                     .weight = {},
                     .bias = {},
                     .output = last_dims(output, dims)};
  for (int64_t size : plan.output.sizes) plan.size *= size;
  if (attributes.weight) plan.weight = last_dims(operands[1], dims);
  if (attributes.bias) plan.bias = last_dims(operands[attributes.weight ? 2 : 1], dims);
  return {HWY_DYNAMIC_DISPATCH(make_layer_norm)(plan)};
}

}  // namespace nimble
#endif
