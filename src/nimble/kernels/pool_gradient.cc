#include "nimble/kernels/pool_gradient.h"

#include <algorithm>
#include <limits>

#include "nimble/base/error.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/pool_spans.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/pool_gradient.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

using IntTag = hn::RebindToSigned<FloatTag>;

// Indices fit into 32 bits.
template <bool kWhole>
HWY_INLINE hn::Vec<IntTag> load_indices(const int64_t* from, [[maybe_unused]] int count) {
  const IntTag di;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kWhole || kMasksAreSafe) {
    const hn::Repartition<int64_t, IntTag> wide;
    constexpr int kHalf = kLanes / 2;
    const auto load = [&](int begin) HWY_ATTR {
      if constexpr (kWhole) return hn::LoadU(wide, from + begin);
      const int left = count < begin ? 0 : count - begin;
      return hn::MaskedLoad(hn::FirstN(wide, static_cast<size_t>(left < kHalf ? left : kHalf)),
                            wide, from + begin);
    };
    return hn::ConcatEven(di, hn::BitCast(di, load(kHalf)), hn::BitCast(di, load(0)));
  }
#endif
  HWY_ALIGN int32_t lanes[kLanes] = {};
  for (int i = 0; i < count; ++i) lanes[i] = static_cast<int32_t>(from[i]);
  return hn::Load(di, lanes);
}

class PoolGradientKernel final : public Kernel {
 public:
  explicit PoolGradientKernel(PoolGradientPlan plan) : plan_(std::move(plan)) {}

  std::string name() const override { return message("pool_gradient of ", kLanes, " channels"); }
  Work work() const override {
    const ImageRows& input = plan_.input;
    if (input.numel() == 0) return {0, 1, 0, 0};
    return {input.batch() * input.height(), 1, input.channels(), kLanes};
  }

  void run(const KernelArguments& arguments) const override {
    if (plan_.maximum)
      run_rows<true>(arguments);
    else
      run_rows<false>(arguments);
  }

 private:
  template <bool kMaximum>
  void run_rows(const KernelArguments& arguments) const {
    const Part& part = arguments.part;
    const ImageRows& input = plan_.input;
    for (int64_t row = part.row_begin; row < part.row_end; ++row) {
      const int64_t image = row / input.height();
      const int64_t y = row % input.height();
      Pixel pixel{};
      pixel.rows = plan_.rows[static_cast<size_t>(y)];
      for (int64_t x = 0; x < input.width(); ++x) {
        pixel.columns = plan_.columns[static_cast<size_t>(x)];
        pixel.index = static_cast<int32_t>(y * input.width() + x);
        float* to = static_cast<float*>(arguments.operands[kMaximum ? 2 : 1]) +
                    input.offset(image, y) + x * input.pixel();
        const float* from = static_cast<const float*>(arguments.operands[0]) +
                            plan_.result.offset(image, pixel.rows.begin) +
                            pixel.columns.begin * plan_.result.pixel();
        const int64_t* indices = nullptr;
        if constexpr (kMaximum)
          indices = static_cast<const int64_t*>(arguments.operands[1]) +
                    plan_.indices.offset(image, pixel.rows.begin) +
                    pixel.columns.begin * plan_.indices.pixel();
        int64_t c = part.column_begin;
        for (; c + kLanes <= part.column_end; c += kLanes)
          gather<kMaximum, AllLanes>(pixel, from + c, kMaximum ? indices + c : nullptr, kLanes,
                                     to + c);
        if (c < part.column_end)
          gather<kMaximum, SomeLanes>(pixel, from + c, kMaximum ? indices + c : nullptr,
                                      static_cast<int>(part.column_end - c), to + c);
      }
    }
  }

  struct Pixel {
    Covering rows;
    Covering columns;
    int32_t index;
  };

  template <bool kMaximum, class Lanes>
  HWY_INLINE void gather(const Pixel& pixel, const float* from, const int64_t* indices, int count,
                         float* to) const {
    const FloatTag d;
    const IntTag di;
    const Lanes lanes(count);
    constexpr bool kWhole = std::is_same_v<Lanes, AllLanes>;
    FloatVector sum = hn::Zero(d);
    for (int64_t y = pixel.rows.begin; y < pixel.rows.end; ++y) {
      const int64_t row = y - pixel.rows.begin;
      for (int64_t x = pixel.columns.begin; x < pixel.columns.end; ++x) {
        const int64_t column = x - pixel.columns.begin;
        const FloatVector gradient =
            lanes.load(from + row * plan_.result.row() + column * plan_.result.pixel());
        if constexpr (kMaximum) {
          const auto named = load_indices<kWhole>(
              indices + row * plan_.indices.row() + column * plan_.indices.pixel(), count);
          const auto here = hn::RebindMask(d, hn::Eq(named, hn::Set(di, pixel.index)));
          sum = hn::Add(sum, hn::IfThenElseZero(here, gradient));
        } else {
          const auto at = static_cast<size_t>(y * plan_.result.width() + x);
          sum = hn::MulAdd(gradient, hn::Set(d, plan_.scales[at]), sum);
        }
      }
    }
    lanes.store(sum, to);
  }

  PoolGradientPlan plan_;
};

KernelPtr make_kernel(PoolGradientPlan plan) {
  return std::make_shared<PoolGradientKernel>(std::move(plan));
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {
namespace {

std::vector<Covering> covering(const Pool& pool, size_t dim, int64_t input, int64_t output) {
  std::vector<Covering> list;
  const int64_t reach = (pool.kernel[dim] - 1) * pool.dilation[dim];
  for (int64_t i = 0; i < input; ++i) {
    const int64_t last = (i + pool.padding[dim]) / pool.stride[dim];
    const int64_t before = i + pool.padding[dim] - reach;  // windows that begin here or behind
    const int64_t first = before <= 0 ? 0 : (before + pool.stride[dim] - 1) / pool.stride[dim];
    const int64_t end = std::min(last + 1, output);
    list.push_back({std::min(first, end), end});
  }
  return list;
}

}  // namespace

HWY_EXPORT(make_kernel);

KernelPtr make_pool_gradient(PoolGradientPlan plan) {
  return HWY_DYNAMIC_DISPATCH(make_kernel)(std::move(plan));
}

std::vector<KernelPtr> pool_gradient_candidates(const PoolGradient& attributes,
                                                std::span<const TensorDesc> operands) {
  const Pool& pool = attributes.pool;
  for (const TensorDesc& desc : operands)
    if (desc.sizes.size() != 4 || !ImageRows(desc).channels_last()) return {};
  const TensorDesc& result = operands.front();
  const TensorDesc& input = operands.back();
  if (result.dtype.name != "float32" || input.dtype.name != "float32") return {};
  if (pool.epilogue != Epilogue()) return {};
  PoolGradientPlan plan;
  plan.result = ImageRows(result);
  plan.input = ImageRows(input);
  plan.maximum = pool.kind == Pool::Kind::kMax;
  plan.rows = covering(pool, 0, input.sizes[2], result.sizes[2]);
  plan.columns = covering(pool, 1, input.sizes[3], result.sizes[3]);
  if (plan.maximum) {
    if (operands[1].dtype.name != "int64") return {};
    if (input.sizes[2] * input.sizes[3] > std::numeric_limits<int32_t>::max()) return {};
    plan.indices = ImageRows(operands[1]);
  } else {
    if (pool.dilation != std::array<int64_t, 2>{1, 1}) return {};
    for (int64_t y = 0; y < result.sizes[2]; ++y)
      for (int64_t x = 0; x < result.sizes[3]; ++x)
        plan.scales.push_back(pool_scale(pool, pool_span(pool, 0, input.sizes[2], y),
                                         pool_span(pool, 1, input.sizes[3], x)));
  }
  return {make_pool_gradient(std::move(plan))};
}

}  // namespace nimble
#endif
