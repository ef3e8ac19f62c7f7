#pragma once

#include <cstdint>
#include <vector>

#include "nimble/base/tensor_desc.h"

// For the references in plain loops.
namespace nimble {

// Calls visit(index) for every index of these sizes, the last dim fastest.
template <class Visit>
void for_each_index(const std::vector<int64_t>& sizes, const Visit& visit) {
  for (int64_t size : sizes)
    if (size == 0) return;
  std::vector<int64_t> index(sizes.size());
  while (true) {
    visit(index);
    size_t d = index.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

// The element's place, from the tensor's first.
inline int64_t place(const TensorDesc& desc, const std::vector<int64_t>& index) {
  int64_t at = 0;
  for (size_t d = 0; d < desc.sizes.size(); ++d) at += index[d] * desc.strides[d];
  return at;
}

}  // namespace nimble
