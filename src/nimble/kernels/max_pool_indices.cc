#include <algorithm>
#include <limits>

#include "nimble/base/error.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/image_rows.h"
#include "nimble/kernels/pool_spans.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/max_pool_indices.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "nimble/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

using IntTag = hn::RebindToSigned<FloatTag>;

class MaxPoolIndicesKernel final : public Kernel {
 public:
  MaxPoolIndicesKernel(const Pool& pool, std::span<const TensorDesc> operands)
      : pool_(pool), input_(operands[0]), output_(operands[1]), indices_(operands[2]) {
    for (int64_t y = 0; y < output_.height(); ++y)
      rows_.push_back(pool_span(pool, 0, input_.height(), y));
    for (int64_t x = 0; x < output_.width(); ++x)
      columns_.push_back(pool_span(pool, 1, input_.width(), x));
  }

  std::string name() const override { return message("max_pool_indices of ", kLanes, " channels"); }
  Work work() const override {
    if (output_.numel() == 0) return {0, 1, 0, 0};
    return {output_.batch() * output_.height(), 1, output_.channels(), kLanes};
  }

  void run(const KernelArguments& arguments) const override {
    const Part& part = arguments.part;
    for (int64_t row = part.row_begin; row < part.row_end; ++row) {
      const int64_t image = row / output_.height();
      const int64_t y = row % output_.height();
      const float* input = static_cast<const float*>(arguments.operands[0]) +
                           input_.offset(image, rows_[static_cast<size_t>(y)].first);
      float* output = static_cast<float*>(arguments.operands[1]) + output_.offset(image, y);
      int64_t* indices = static_cast<int64_t*>(arguments.operands[2]) + indices_.offset(image, y);
      for (int64_t x = 0; x < output_.width(); ++x) {
        const PoolSpan& span = columns_[static_cast<size_t>(x)];
        const float* first = input + span.first * input_.pixel();
        float* to = output + x * output_.pixel();
        int64_t* index = indices + x * indices_.pixel();
        int64_t c = part.column_begin;
        for (; c + kLanes <= part.column_end; c += kLanes)
          run_window<AllLanes>(first + c, y, span, kLanes, to + c, index + c);
        if (c < part.column_end)
          run_window<SomeLanes>(first + c, y, span, static_cast<int>(part.column_end - c), to + c,
                                index + c);
      }
    }
  }

 private:
  template <class Lanes>
  HWY_INLINE void run_window(const float* first, int64_t y, const PoolSpan& columns, int count,
                             float* to, int64_t* indices) const {
    const FloatTag d;
    const IntTag di;
    const Lanes lanes(count);
    const PoolSpan& rows = rows_[static_cast<size_t>(y)];
    const auto start = static_cast<int32_t>(rows.first * input_.width() + columns.first);
    FloatVector best = hn::Set(d, -std::numeric_limits<float>::infinity());
    auto index = hn::Set(di, start);
    for (int64_t ky = 0; ky < rows.taps; ++ky) {
      const float* at = first + ky * pool_.dilation[0] * input_.row();
      auto here =
          hn::Set(di, start + static_cast<int32_t>(ky * pool_.dilation[0] * input_.width()));
      const auto step = hn::Set(di, static_cast<int32_t>(pool_.dilation[1]));
      for (int64_t kx = 0; kx < columns.taps; ++kx, at += pool_.dilation[1] * input_.pixel()) {
        const FloatVector x = lanes.load(at);
        const auto better = hn::Or(hn::Gt(x, best), hn::IsNaN(x));
        best = hn::IfThenElse(better, x, best);
        index = hn::IfThenElse(hn::RebindMask(di, better), here, index);
        here = hn::Add(here, step);
      }
    }
    lanes.store(best, to);
    HWY_ALIGN int32_t results[kLanes];
    hn::Store(index, di, results);
    for (int i = 0; i < count; ++i) indices[i] = results[i];
  }

  Pool pool_;
  ImageRows input_, output_, indices_;
  std::vector<PoolSpan> rows_, columns_;
};

KernelPtr make_max_pool_indices(const Pool& pool, std::span<const TensorDesc> operands) {
  return std::make_shared<MaxPoolIndicesKernel>(pool, operands);
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {
HWY_EXPORT(make_max_pool_indices);

std::vector<KernelPtr> max_pool_indices_candidates(const MaxPoolIndices& attributes,
                                                   std::span<const TensorDesc> operands) {
  const Pool& pool = attributes.pool;
  for (const TensorDesc& desc : operands)
    if (desc.sizes.size() != 4 || !ImageRows(desc).channels_last()) return {};
  if (pool.kind != Pool::Kind::kMax || pool.epilogue != Epilogue()) return {};
  if (operands[0].dtype.name != "float32" || operands[1].dtype.name != "float32" ||
      operands[2].dtype.name != "int64")
    return {};
  const auto& input = operands[0].sizes;
  if (input[2] * input[3] > std::numeric_limits<int32_t>::max()) return {};
  // What the index of a window without any element is, nobody says.
  for (size_t dim : {0, 1})
    for (int64_t i = 0; i < operands[1].sizes[2 + dim]; ++i)
      if (pool_span(pool, static_cast<int>(dim), input[2 + dim], i).taps == 0) return {};
  return {HWY_DYNAMIC_DISPATCH(make_max_pool_indices)(pool, operands)};
}

}  // namespace nimble
#endif
