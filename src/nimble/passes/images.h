#pragma once

#include <optional>
#include <vector>

#include "nimble/graph/graph.h"

// How images lie in memory, and who minds.
namespace nimble {

// [N, C, H, W] in the order N, H, W, C without gaps, at the beginning of its memory.
TensorDesc channels_last(const DType& dtype, const std::vector<int64_t>& sizes);

// A tensor as image kernels take it: channels next to each other, pixels at a constant distance.
// Dims of size 1 get the strides they would have with more. None if it lies otherwise.
std::optional<TensorDesc> as_image(const TensorDesc& desc);

// Which operands of an op must be like that; none for ops that are no image kernels.
std::vector<size_t> image_operands(const Graph& graph, const Op& op);

// The same for tensors whose rows of pixels may lie anywhere: crops. Most image kernels take them.
bool has_channels_last(const TensorDesc& desc);

// Whether an op is a 1x1 convolution that makes each pixel of its result from the same one of its
// input, as it is: one group, no stride, padding, relu or scale.
bool is_pointwise(const Graph& graph, const Op& op);

// Whether there is a kernel of ours for an op with these views of its operands.
bool has_kernel(const Op& op, const std::vector<TensorDesc>& views);
// Whether an op of ours has no fewer kernels with other views of its operands.
bool kernels_take(const Graph& graph, const Op& op, const std::vector<TensorDesc>& changed);

}  // namespace nimble
