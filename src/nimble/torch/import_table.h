#pragma once

#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "nimble/torch/call_reader.h"

// How recorded calls become ops of ours, and what those who say so share.
namespace nimble {

// True if it wrote the op in our terms; false: leave it to the framework.
using Import = bool (*)(CallReader&);
using ImportTable = std::unordered_map<std::string, Import>;

const ImportTable& inference_imports();
// Of ops that only training has.
const ImportTable& training_imports();
const ImportTable& transformer_imports();
// Of ops that do more in training.
bool import_batch_norm_in_training(CallReader& call);
bool import_max_pool_with_indices(CallReader& call, const Pool& pool);
bool import_layer_norm_with_statistics(CallReader& call, LayerNorm norm,
                                       const std::vector<TensorRef>& inputs);

using Sizes = std::vector<int64_t>;

// As the framework broadcasts: dims are added in front, and those of size 1 repeat.
std::optional<TensorDesc> expanded(const TensorDesc& desc, const Sizes& sizes);
// A vector of C elements as it meets an image or any tensor with C at dim 1.
TensorDesc along_channels(const TensorDesc& vector, const Sizes& sizes);
TensorDesc with_dim(TensorDesc desc, size_t position);
std::optional<std::array<int64_t, 2>> pair_of(const Sizes& values);
// Kernel, stride and padding at these positions of the arguments.
std::optional<Pool> pool_of(const CallReader& call, size_t first = 1);

// Makes the call's result elementwise. The last step is the result.
bool emit_chain(CallReader& call, std::vector<TensorRef> inputs, std::vector<ChainStep> steps);
// Vectors [C]: the sums of `sums` over all of a chain's elements but the channels.
void emit_sums(CallReader& call, const Chain& chain, const std::vector<TensorRef>& inputs,
               const std::vector<int>& sums, const std::vector<TensorRef>& vectors);

}  // namespace nimble
