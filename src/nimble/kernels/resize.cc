#include <algorithm>
#include <cmath>

#include "nimble/base/error.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/image_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/resize.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/lanes-inl.h"

#ifndef NIMBLE_KERNELS_RESIZE_ONCE_
#define NIMBLE_KERNELS_RESIZE_ONCE_
namespace nimble {

// Where an output row or column comes from: two neighbours and the second one's share. Nearest:
// just the first.
struct ResizeSource {
  int64_t first = 0;
  int64_t second = 0;
  float share = 0;
};

// In the framework's own precision: whether a position falls on one pixel or the next depends on
// it. There, the compiler made a fused multiply-add of it.
inline std::vector<ResizeSource> resize_sources(const Resize& resize, int dim, int64_t input,
                                                int64_t output) {
  const bool corners = resize.kind == Resize::Kind::kBilinear && resize.align_corners;
  float scale;
  if (corners)
    scale = output > 1 ? static_cast<float>(input - 1) / static_cast<float>(output - 1) : 0.0f;
  else if (resize.scale[dim] > 0)
    scale = static_cast<float>(resize.scale[dim]);
  else
    scale = static_cast<float>(input) / static_cast<float>(output);
  std::vector<ResizeSource> sources(static_cast<size_t>(output));
  for (int64_t i = 0; i < output; ++i) {
    ResizeSource& source = sources[static_cast<size_t>(i)];
    const float index = static_cast<float>(i);
    float position = scale * index;
    if (resize.kind == Resize::Kind::kBilinear && !corners)
      position = std::max(std::fma(scale, index + 0.5f, -0.5f), 0.0f);
    source.first = std::min(static_cast<int64_t>(std::floor(position)), input - 1);
    if (resize.kind == Resize::Kind::kNearest) continue;
    source.second = std::min(source.first + 1, input - 1);
    source.share = std::clamp(position - static_cast<float>(source.first), 0.0f, 1.0f);
  }
  return sources;
}

}  // namespace nimble
#endif

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

class ResizeKernel final : public Kernel {
 public:
  ResizeKernel(const Resize& resize, std::span<const TensorDesc> operands)
      : kind_(resize.kind),
        input_(operands[0]),
        output_(operands[1]),
        rows_(resize_sources(resize, 0, input_.height(), output_.height())),
        columns_(resize_sources(resize, 1, input_.width(), output_.width())) {}

  std::string name() const override {
    return message(kind_ == Resize::Kind::kNearest ? "resize.nearest" : "resize.bilinear", " of ",
                   kLanes, " channels");
  }
  Work work() const override {
    if (output_.numel() == 0) return {0, 1, 0, 0};
    return {output_.batch() * output_.height(), 1, output_.channels(), kLanes};
  }

  void run(const KernelArguments& arguments) const override {
    const Part& part = arguments.part;
    for (int64_t row = part.row_begin; row < part.row_end; ++row) {
      const int64_t image = row / output_.height();
      const int64_t y = row % output_.height();
      const ResizeSource& source = rows_[static_cast<size_t>(y)];
      const float* input = static_cast<const float*>(arguments.operands[0]) + part.column_begin;
      const float* upper = input + input_.offset(image, source.first);
      const float* lower = input + input_.offset(image, source.second);
      float* output =
          static_cast<float*>(arguments.operands[1]) + output_.offset(image, y) + part.column_begin;
      const int64_t channels = part.column_end - part.column_begin;
      for (int64_t x = 0; x < output_.width(); ++x) {
        float* to = output + x * output_.pixel();
        const ResizeSource& column = columns_[static_cast<size_t>(x)];
        const int64_t left = column.first * input_.pixel();
        if (kind_ == Resize::Kind::kNearest) {
          for_each_vector(channels, [&](int64_t c, const auto& lanes) NIMBLE_INLINE_LAMBDA {
            lanes.store(lanes.load(upper + left + c), to + c);
          });
          continue;
        }
        const int64_t right = column.second * input_.pixel();
        const FloatTag d;
        const FloatVector right_share = hn::Set(d, column.share);
        const FloatVector left_share = hn::Set(d, 1.0f - column.share);
        const FloatVector lower_share = hn::Set(d, source.share);
        const FloatVector upper_share = hn::Set(d, 1.0f - source.share);
        for_each_vector(channels, [&](int64_t c, const auto& lanes) NIMBLE_INLINE_LAMBDA {
          const FloatVector above = hn::MulAdd(right_share, lanes.load(upper + right + c),
                                               hn::Mul(left_share, lanes.load(upper + left + c)));
          const FloatVector below = hn::MulAdd(right_share, lanes.load(lower + right + c),
                                               hn::Mul(left_share, lanes.load(lower + left + c)));
          lanes.store(hn::MulAdd(lower_share, below, hn::Mul(upper_share, above)), to + c);
        });
      }
    }
  }

 private:
  template <class F>
  static HWY_INLINE void for_each_vector(int64_t channels, const F& f) {
    int64_t c = 0;
    for (; c + kLanes <= channels; c += kLanes) f(c, AllLanes(kLanes));
    if (c < channels) f(c, SomeLanes(static_cast<int>(channels - c)));
  }

  Resize::Kind kind_;
  ImageRows input_, output_;
  std::vector<ResizeSource> rows_, columns_;
};

KernelPtr make_resize(const Resize& resize, std::span<const TensorDesc> operands) {
  return std::make_shared<ResizeKernel>(resize, operands);
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {
HWY_EXPORT(make_resize);

std::vector<KernelPtr> resize_candidates(const Resize& resize,
                                         std::span<const TensorDesc> operands) {
  for (const TensorDesc& desc : operands)
    if (desc.sizes.size() != 4 || !ImageRows(desc).channels_last()) return {};
  return {HWY_DYNAMIC_DISPATCH(make_resize)(resize, operands)};
}

}  // namespace nimble
#endif
