#include "nimble/base/tensor_desc.h"

#include <algorithm>
#include <numeric>

namespace nimble {

int64_t TensorDesc::numel() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

int64_t TensorDesc::begin_byte() const {
  return offset * dtype.bytes;  // the framework has no negative strides
}

int64_t TensorDesc::end_byte() const {
  if (numel() == 0) return begin_byte();
  int64_t last = offset;
  for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
  return (last + 1) * dtype.bytes;
}

namespace {

// Dimensions with more than one index, those of the smallest stride first.
std::vector<size_t> by_stride(const TensorDesc& desc) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < desc.sizes.size(); ++d)
    if (desc.sizes[d] != 1) dims.push_back(d);
  std::sort(dims.begin(), dims.end(),
            [&](size_t a, size_t b) { return desc.strides[a] < desc.strides[b]; });
  return dims;
}

}  // namespace

bool TensorDesc::may_overlap_itself() const {
  int64_t reach = 0;  // of the dimensions so far
  for (size_t d : by_stride(*this)) {
    if (sizes[d] == 0) return false;
    if (strides[d] <= reach) return true;
    reach += (sizes[d] - 1) * strides[d];
  }
  return false;
}

bool TensorDesc::is_dense() const {
  int64_t expected = 1;
  for (size_t d : by_stride(*this)) {
    if (sizes[d] == 0) return true;
    if (strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

bool TensorDesc::is_row_major() const {
  if (numel() == 0) return true;
  int64_t expected = 1;
  for (size_t d = sizes.size(); d-- > 0; expected *= sizes[d])
    if (sizes[d] != 1 && strides[d] != expected) return false;
  return true;
}

std::string TensorDesc::to_string() const {
  std::string text = dtype.name;
  const char* separator = "[";
  for (int64_t size : sizes) {
    text.append(separator).append(std::to_string(size));
    separator = ",";
  }
  return text.append(sizes.empty() ? "[]" : "]");
}

}  // namespace nimble
