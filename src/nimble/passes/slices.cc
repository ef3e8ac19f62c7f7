#include "nimble/passes/slices.h"

#include <algorithm>

namespace nimble {

std::optional<std::vector<int64_t>> start_of_slice(const TensorDesc& view,
                                                   const TensorDesc& whole) {
  const size_t rank = whole.sizes.size();
  if (view.sizes.size() != rank || !(view.dtype == whole.dtype) || view.numel() == 0 ||
      view.conjugate || view.negative || whole.may_overlap_itself())
    return std::nullopt;
  std::vector<size_t> dims;
  for (size_t d = 0; d < rank; ++d) {
    if (view.sizes[d] > whole.sizes[d]) return std::nullopt;
    if (view.sizes[d] != 1 && view.strides[d] != whole.strides[d]) return std::nullopt;
    if (whole.sizes[d] != 1) dims.push_back(d);
  }
  std::sort(dims.begin(), dims.end(),
            [&](size_t a, size_t b) { return whole.strides[a] > whole.strides[b]; });
  std::vector<int64_t> start(rank, 0);
  int64_t rest = view.offset - whole.offset;
  if (rest < 0) return std::nullopt;
  for (size_t d : dims) {
    start[d] = rest / whole.strides[d];
    rest %= whole.strides[d];
    if (start[d] + view.sizes[d] > whole.sizes[d]) return std::nullopt;
  }
  if (rest != 0) return std::nullopt;
  return start;
}

TensorDesc slice(TensorDesc desc, size_t dim, int64_t start, int64_t size) {
  desc.offset += start * desc.strides[dim];
  desc.sizes[dim] = size;
  return desc;
}

}  // namespace nimble
