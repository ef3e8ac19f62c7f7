#pragma once

#include <functional>
#include <optional>

#include "nimble/graph/graph.h"

// What passes use that make results of chains a second time.
namespace nimble {

// What of `maker` (a Chain or ChainSums) makes one of its chain's outputs, as a Chain of its own;
// none if that is nothing, or many steps, or one that is not allowed.
std::optional<Op> maker_of_output(const Op& maker, size_t output,
                                  const std::function<bool(const ChainStep&)>& allowed);

// Additions and multiplications.
bool is_one_instruction(const ChainStep& step);

// Which of a chain's outputs goes to a memory; none if none does.
std::optional<size_t> output_in(const Op& maker, MemoryId memory);

// Whether an input has nearly as many elements as a result: not a vector of channels, which is read
// again and again.
bool is_image_beside(const TensorDesc& input, const TensorDesc& result);

}  // namespace nimble
