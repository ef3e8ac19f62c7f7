#include <algorithm>

#include "nimble/base/error.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/image_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/adaptive_pool.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/lanes-inl.h"
#include "nimble/kernels/window-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

class AdaptivePoolKernel final : public Kernel {
 public:
  AdaptivePoolKernel(const AdaptivePool& pool, std::span<const TensorDesc> operands)
      : kind_(pool.kind), input_(operands[0]), output_(operands[1]) {}

  std::string name() const override { return message("adaptive_pool of ", kLanes, " channels"); }
  Work work() const override {
    if (output_.numel() == 0) return {0, 1, 0, 0};
    return {output_.batch() * output_.height(), 1, output_.channels(), kLanes};
  }

  void run(const KernelArguments& arguments) const override {
    if (kind_ == Pool::Kind::kMax)
      run_rows<Pool::Kind::kMax>(arguments);
    else
      run_rows<Pool::Kind::kAverage>(arguments);
  }

 private:
  static int64_t begin_of(int64_t index, int64_t output, int64_t input) {
    return index * input / output;
  }
  static int64_t end_of(int64_t index, int64_t output, int64_t input) {
    return ((index + 1) * input + output - 1) / output;
  }

  template <Pool::Kind kKind>
  void run_rows(const KernelArguments& arguments) const {
    const Part& part = arguments.part;
    Window window;
    window.row_step = input_.row();
    window.column_step = input_.pixel();
    for (int64_t row = part.row_begin; row < part.row_end; ++row) {
      const int64_t image = row / output_.height();
      const int64_t y = row % output_.height();
      const int64_t top = begin_of(y, output_.height(), input_.height());
      window.rows = end_of(y, output_.height(), input_.height()) - top;
      const float* input =
          static_cast<const float*>(arguments.operands[0]) + input_.offset(image, top);
      float* output = static_cast<float*>(arguments.operands[1]) + output_.offset(image, y);
      for (int64_t x = 0; x < output_.width(); ++x) {
        const int64_t left = begin_of(x, output_.width(), input_.width());
        window.columns = end_of(x, output_.width(), input_.width()) - left;
        const float* from = input + left * input_.pixel();
        float* to = output + x * output_.pixel();
        constexpr int kMany = 4;
        int64_t c = part.column_begin;
        for (; c + kMany * kLanes <= part.column_end; c += kMany * kLanes)
          run_vectors<kKind, kMany>(window, from + c, AllLanes(kLanes), to + c);
        for (; c + kLanes <= part.column_end; c += kLanes)
          run_vectors<kKind, 1>(window, from + c, AllLanes(kLanes), to + c);
        if (c < part.column_end)
          run_vectors<kKind, 1>(window, from + c, SomeLanes(static_cast<int>(part.column_end - c)),
                                to + c);
      }
    }
  }

  template <Pool::Kind kKind, int kVectors, class Lanes>
  static void run_vectors(Window window, const float* from, const Lanes& lanes, float* to) {
    window.first = from;
    FloatVector result[kVectors];
    reduce_window<kKind>(window, lanes, result);
    if constexpr (kKind == Pool::Kind::kAverage) {
      const FloatVector scale =
          hn::Set(FloatTag(), 1.0f / static_cast<float>(window.rows * window.columns));
      for_each_constant<kVectors>(
          [&](auto i) NIMBLE_INLINE_LAMBDA { result[i] = hn::Mul(result[i], scale); });
    }
    for_each_constant<kVectors>(
        [&](auto i) NIMBLE_INLINE_LAMBDA { lanes.store(result[i], to + i * kLanes); });
  }

  Pool::Kind kind_;
  ImageRows input_, output_;
};

KernelPtr make_adaptive_pool(const AdaptivePool& pool, std::span<const TensorDesc> operands) {
  return std::make_shared<AdaptivePoolKernel>(pool, operands);
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {
HWY_EXPORT(make_adaptive_pool);

std::vector<KernelPtr> adaptive_pool_candidates(const AdaptivePool& pool,
                                                std::span<const TensorDesc> operands) {
  for (const TensorDesc& desc : operands)
    if (desc.sizes.size() != 4 || !ImageRows(desc).channels_last()) return {};
  return {HWY_DYNAMIC_DISPATCH(make_adaptive_pool)(pool, operands)};
}

}  // namespace nimble
#endif
