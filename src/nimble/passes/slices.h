#pragma once

#include <optional>
#include <vector>

#include "nimble/base/tensor_desc.h"

namespace nimble {

// Where a view of the same rank that takes a box out of `whole` begins, by dim; none if it is
// something else (a reshape, a transposition, every second row).
std::optional<std::vector<int64_t>> start_of_slice(const TensorDesc& view, const TensorDesc& whole);

// `size` indices of one dim, from `start` on.
TensorDesc slice(TensorDesc desc, size_t dim, int64_t start, int64_t size);

}  // namespace nimble
