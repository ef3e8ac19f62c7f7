#pragma once

#include <cstdint>
#include <vector>

#include "nimble/base/tensor_desc.h"

namespace nimble {

// The dims of an output whose indices, in this order, count its rows: dims of size 1 first, then by
// falling stride (equal ones in their order), without the last two of an image (rank 4), without
// the last one otherwise. A rank-4 tensor with channels last thus has rows N * H.
std::vector<size_t> row_dims(const TensorDesc& output);
int64_t row_count(const TensorDesc& output);

}  // namespace nimble
