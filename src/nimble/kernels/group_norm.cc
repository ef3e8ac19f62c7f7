#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>

#include "nimble/kernels/families.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/group_norm.cc"
#include <hwy/foreach_target.h>  // first of the per-target headers

#include <hwy/highway.h>

#include "nimble/kernels/vector_rows-inl.h"

#ifndef NIMBLE_KERNELS_GROUP_NORM_SHARED_
#define NIMBLE_KERNELS_GROUP_NORM_SHARED_
namespace nimble {

struct GroupNormPlan {
  struct Strides {
    int64_t image = 0;
    int64_t channel = 0;
    int64_t pixel = 0;
  };
  GroupNorm attributes;
  int64_t images = 0;
  int64_t channels = 0;
  int64_t pixels = 1;
  Strides input, output;
  int64_t weight_stride = 0;
  int64_t bias_stride = 0;
};

}  // namespace nimble
#endif

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

class GroupNormKernel : public Kernel {
 public:
  explicit GroupNormKernel(const GroupNormPlan& plan) : plan_(plan) {}
  Work work() const override {
    const GroupNormPlan& p = plan_;
    if (p.images * p.channels * p.pixels == 0) return {.rows = 0, .columns = 0};
    return {.rows = p.images, .row_grain = 1, .columns = p.channels, .column_grain = group_size()};
  }
  // By channel of the part: see Terms.
  size_t scratch_bytes(const Part& part) const override {
    return 3 * static_cast<size_t>(part.column_end - part.column_begin) * sizeof(float);
  }

  void run(const KernelArguments& arguments) const override {
    const Part& part = arguments.part;
    const GroupNorm& attributes = plan_.attributes;
    size_t operand = 0;
    const float* input = static_cast<const float*>(arguments.operands[operand++]);
    const float* weight = nullptr;
    const float* bias = nullptr;
    if (attributes.weight) weight = static_cast<const float*>(arguments.operands[operand++]);
    if (attributes.bias) bias = static_cast<const float*>(arguments.operands[operand++]);
    float* output = static_cast<float*>(arguments.operands[operand]);

    const int64_t channels = part.column_end - part.column_begin;
    float* means = reinterpret_cast<float*>(arguments.scratch);
    float* scales = means + channels;
    float* shifts = scales + channels;
    const auto pixels = static_cast<double>(plan_.pixels);
    for (int64_t n = part.row_begin; n < part.row_end; ++n) {
      const float* from = input + n * plan_.input.image + part.column_begin * plan_.input.channel;
      float* to = output + n * plan_.output.image + part.column_begin * plan_.output.channel;
      find_moments(from, static_cast<size_t>(channels), means, scales);
      for (int64_t begin = 0; begin < channels; begin += group_size()) {
        const int64_t end = begin + group_size();
        double mean = 0;
        for (int64_t c = begin; c < end; ++c) mean += means[c];
        mean /= static_cast<double>(group_size());
        double squares = 0;
        for (int64_t c = begin; c < end; ++c)
          squares += scales[c] + pixels * (means[c] - mean) * (means[c] - mean);
        const double variance = squares / (pixels * static_cast<double>(group_size()));
        const double factor = 1 / std::sqrt(variance + attributes.epsilon);
        for (int64_t c = begin; c < end; ++c) {
          const int64_t channel = part.column_begin + c;
          means[c] = static_cast<float>(mean);
          scales[c] =
              static_cast<float>(weight ? factor * weight[channel * plan_.weight_stride] : factor);
          shifts[c] = bias ? bias[channel * plan_.bias_stride] : 0.0f;
        }
      }
      apply(from, static_cast<size_t>(channels), {means, scales, shifts}, to);
    }
  }

 protected:
  // By channel: the result is activation((x - mean) * scale + shift).
  struct Terms {
    const float* means;
    const float* scales;
    const float* shifts;
  };

  // Of each channel.
  virtual void find_moments(const float* from, size_t channels, float* means,
                            float* squares) const = 0;
  virtual void apply(const float* from, size_t channels, const Terms& terms, float* to) const = 0;
  int64_t group_size() const { return plan_.channels / plan_.attributes.groups; }

  GroupNormPlan plan_;
};

// Channels are planes.
class GroupNormPlanes final : public GroupNormKernel {
 public:
  using GroupNormKernel::GroupNormKernel;
  std::string name() const override { return "group_norm.planes"; }

 private:
  void find_moments(const float* from, size_t channels, float* means,
                    float* squares) const override {
    constexpr size_t kChunk = 4096;  // stays in the first-level cache for its second pass
    const auto pixels = static_cast<size_t>(plan_.pixels);
    for (size_t c = 0; c < channels; ++c) {
      const float* plane = from + static_cast<int64_t>(c) * plan_.input.channel;
      double mean = 0;
      double sum = 0;
      for (size_t i = 0; i < pixels; i += kChunk) {
        const size_t size = std::min(kChunk, pixels - i);
        const double before = static_cast<double>(i);
        const double count = static_cast<double>(size);
        const double chunk_mean = sum_of_row(plane + i, size) / count;
        const double distance = chunk_mean - mean;
        sum += sum_of_squares(plane + i, size, static_cast<float>(chunk_mean)) +
               distance * distance * before * count / (before + count);
        mean += distance * count / (before + count);
      }
      means[c] = static_cast<float>(mean);
      squares[c] = static_cast<float>(sum);
    }
  }

  void apply(const float* from, size_t channels, const Terms& terms, float* to) const override {
    const FloatTag d;
    const auto pixels = static_cast<size_t>(plan_.pixels);
    for (size_t c = 0; c < channels; ++c) {
      const float* plane = from + static_cast<int64_t>(c) * plan_.input.channel;
      float* result = to + static_cast<int64_t>(c) * plan_.output.channel;
      const auto mean = hn::Set(d, terms.means[c]);
      const auto scale = hn::Set(d, terms.scales[c]);
      const auto shift = hn::Set(d, terms.shifts[c]);
      for_each_vector(pixels, [&](size_t i, size_t lanes, auto whole) HWY_ATTR {
        const auto x = hn::Sub(load_part(plane + i, lanes, whole), mean);
        store_part(hn::MulAdd(x, scale, shift), result + i, lanes, whole);
      });
      activate_row(d, plan_.attributes.activation, result, pixels);
    }
  }
};

// A pixel's channels are neighbours.
class GroupNormPixels final : public GroupNormKernel {
 public:
  using GroupNormKernel::GroupNormKernel;
  std::string name() const override { return "group_norm.pixels"; }

 private:
  static constexpr size_t kVectors = 4;
  static constexpr int64_t kChunk = 64;  // pixels that stay in the first-level cache

  void find_moments(const float* from, size_t channels, float* means,
                    float* squares) const override {
    size_t c = 0;
    for (; c + kVectors * kLanes <= channels; c += kVectors * kLanes)
      find_moments<kVectors>(from + c, kVectors * kLanes, std::true_type(), means + c, squares + c);
    for (; c + kLanes <= channels; c += kLanes)
      find_moments<1>(from + c, kLanes, std::true_type(), means + c, squares + c);
    if (c < channels)
      find_moments<1>(from + c, channels - c, std::false_type(), means + c, squares + c);
  }

  template <size_t n, class Whole>
  void find_moments(const float* from, size_t channels, Whole whole, float* means,
                    float* squares) const {
    const FloatTag d;
    const int64_t stride = plan_.input.pixel;
    const size_t last = channels - (n - 1) * kLanes;  // lanes of the last vector
    FloatVector mean[n];
    FloatVector sum[n];
    for (size_t v = 0; v < n; ++v) mean[v] = sum[v] = hn::Zero(d);
    for (int64_t begin = 0; begin < plan_.pixels; begin += kChunk) {
      const int64_t end = std::min(begin + kChunk, plan_.pixels);
      const auto before = static_cast<float>(begin);
      const auto count = static_cast<float>(end - begin);
      FloatVector chunk[n];
      FloatVector chunk_sum[n];
      for (size_t v = 0; v < n; ++v) chunk[v] = chunk_sum[v] = hn::Zero(d);
      for (int64_t p = begin; p < end; ++p)
        for (size_t v = 0; v < n; ++v)
          chunk[v] = hn::Add(chunk[v], load_part(from + p * stride + v * kLanes, last, whole));
      for (size_t v = 0; v < n; ++v) chunk[v] = hn::Mul(chunk[v], hn::Set(d, 1 / count));
      for (int64_t p = begin; p < end; ++p) {
        for (size_t v = 0; v < n; ++v) {
          const auto x = load_part(from + p * stride + v * kLanes, last, whole);
          const auto distance = hn::Sub(x, chunk[v]);
          chunk_sum[v] = hn::MulAdd(distance, distance, chunk_sum[v]);
        }
      }
      const auto share = hn::Set(d, count / (before + count));
      for (size_t v = 0; v < n; ++v) {
        const auto distance = hn::Sub(chunk[v], mean[v]);
        mean[v] = hn::MulAdd(distance, share, mean[v]);
        const auto between =
            hn::Mul(hn::Mul(distance, distance), hn::Mul(share, hn::Set(d, before)));
        sum[v] = hn::Add(sum[v], hn::Add(chunk_sum[v], between));
      }
    }
    for (size_t v = 0; v < n; ++v) {
      store_part(mean[v], means + v * kLanes, last, whole);
      store_part(sum[v], squares + v * kLanes, last, whole);
    }
  }

  void apply(const float* from, size_t channels, const Terms& terms, float* to) const override {
    const FloatTag d;
    for (int64_t p = 0; p < plan_.pixels; ++p) {
      const float* pixel = from + p * plan_.input.pixel;
      float* result = to + p * plan_.output.pixel;
      for_each_vector(channels, [&](size_t i, size_t lanes, auto whole) HWY_ATTR {
        const auto mean = load_part(terms.means + i, lanes, whole);
        const auto x = hn::Sub(load_part(pixel + i, lanes, whole), mean);
        const auto scale = load_part(terms.scales + i, lanes, whole);
        const auto shift = load_part(terms.shifts + i, lanes, whole);
        store_part(hn::MulAdd(x, scale, shift), result + i, lanes, whole);
      });
      activate_row(d, plan_.attributes.activation, result, channels);
    }
  }
};

KernelPtr make_group_norm(const GroupNormPlan& plan, bool planes) {
  if (planes) return std::make_shared<GroupNormPlanes>(plan);
  return std::make_shared<GroupNormPixels>(plan);
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {
namespace {

// Nothing if pixels are not at one stride.
std::optional<GroupNormPlan::Strides> strides_of(const TensorDesc& desc) {
  GroupNormPlan::Strides result{.image = desc.strides[0], .channel = desc.strides[1], .pixel = 1};
  int64_t next = -1;  // what the next dim's stride has to be
  for (size_t d = desc.sizes.size(); d-- > 2;) {
    if (desc.sizes[d] == 1) continue;
    if (next < 0)
      result.pixel = desc.strides[d];
    else if (desc.strides[d] != next)
      return std::nullopt;
    next = desc.strides[d] * desc.sizes[d];
  }
  if (desc.sizes[1] == 1) result.channel = 1;
  return result;
}

}  // namespace

HWY_EXPORT(make_group_norm);

std::vector<KernelPtr> group_norm_candidates(const GroupNorm& attributes,
                                             std::span<const TensorDesc> operands) {
  for (const TensorDesc& operand : operands)
    if (operand.dtype.name != "float32") return {};
  const TensorDesc& output = operands.back();
  const auto from = strides_of(operands.front());
  const auto to = strides_of(output);
  if (!from || !to) return {};
  GroupNormPlan plan{.attributes = attributes,
                     .images = output.sizes[0],
                     .channels = output.sizes[1],
                     .input = *from,
                     .output = *to};
  for (size_t d = 2; d < output.sizes.size(); ++d) plan.pixels *= output.sizes[d];
  if (attributes.weight) plan.weight_stride = operands[1].strides[0];
  if (attributes.bias) plan.bias_stride = operands[attributes.weight ? 2 : 1].strides[0];

  const bool planes = from->pixel == 1 && to->pixel == 1;
  const bool neighbours = from->channel == 1 && to->channel == 1;
  if (!planes && !neighbours) return {};
  return {HWY_DYNAMIC_DISPATCH(make_group_norm)(plan, planes && (!neighbours || plan.pixels > 1))};
}

}  // namespace nimble
#endif
