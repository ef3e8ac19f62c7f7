#include "nimble/kernels/work.h"

#include <algorithm>
#include <numeric>

namespace nimble {

std::vector<size_t> row_dims(const TensorDesc& output) {
  std::vector<size_t> dims(output.sizes.size());
  std::iota(dims.begin(), dims.end(), size_t{0});
  std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) {
    const bool a_single = output.sizes[a] == 1;
    const bool b_single = output.sizes[b] == 1;
    if (a_single || b_single) return a_single && !b_single;
    return output.strides[a] > output.strides[b];
  });
  const size_t inner = dims.size() == 4 ? 2 : 1;
  dims.resize(dims.size() > inner ? dims.size() - inner : 0);
  return dims;
}

int64_t row_count(const TensorDesc& output) {
  int64_t rows = 1;
  for (size_t dim : row_dims(output)) rows *= output.sizes[dim];
  return rows;
}

}  // namespace nimble
