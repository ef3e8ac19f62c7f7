#include "nimble/kernels/whole_reductions.h"

#include <algorithm>

#include "nimble/kernels/work.h"

namespace nimble {

WholeReductions::WholeReductions(const TensorDesc& input, const TensorDesc& output,
                                 const std::vector<bool>& reduced) {
  std::vector<size_t> order = row_dims(output);
  const size_t row_rank = order.size();
  for (size_t d = 0; d < output.sizes.size(); ++d)
    if (std::find(order.begin(), order.end(), d) == order.end()) order.push_back(d);
  std::stable_sort(order.begin() + static_cast<std::ptrdiff_t>(row_rank), order.end(),
                   [&](size_t a, size_t b) { return output.strides[a] > output.strides[b]; });

  bool whole = false;  // a reduced dim was met: from here on, everything is within a grain
  work_.rows = 1;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t d = order[i];
    const int64_t size = output.sizes[d];
    whole |= i >= row_rank || (reduced[d] && size != 1);
    if (i < row_rank) {
      work_.rows *= size;
      if (whole) grain_ *= size;
    }
    if (reduced[d] || size == 1) continue;
    if (whole) per_grain_ *= size;
    const std::array<int64_t, 2> strides = {input.strides[d], output.strides[d]};
    if (!dims_.empty() && dims_.back().strides[0] == strides[0] * size &&
        dims_.back().strides[1] == strides[1] * size)
      dims_.back() = {dims_.back().size * size, strides};
    else
      dims_.push_back({size, strides});
  }
  if (dims_.empty()) dims_.push_back({1, {0, 0}});
  work_.row_grain = grain_ < work_.rows ? grain_ : 0;
  if (output.numel() == 0) work_ = {.rows = 0, .columns = 0};
}

}  // namespace nimble
