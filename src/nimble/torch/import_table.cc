#include "nimble/torch/import_table.h"

#include <utility>

namespace nimble {

// As the framework broadcasts: dims are added in front, and those of size 1 repeat.
std::optional<TensorDesc> expanded(const TensorDesc& desc, const Sizes& sizes) {
  if (desc.sizes.size() > sizes.size()) return std::nullopt;
  TensorDesc result = desc;
  result.wrapped_number = false;
  result.sizes = sizes;
  result.strides.assign(sizes.size(), 0);
  const size_t added = sizes.size() - desc.sizes.size();
  for (size_t d = 0; d < desc.sizes.size(); ++d) {
    if (desc.sizes[d] == sizes[added + d])
      result.strides[added + d] = desc.strides[d];
    else if (desc.sizes[d] != 1)
      return std::nullopt;
  }
  return result;
}

// A vector of C elements as it meets an image or any tensor with C at dim 1.
TensorDesc along_channels(const TensorDesc& vector, const Sizes& sizes) {
  TensorDesc desc = vector;
  desc.sizes = sizes;
  desc.strides.assign(sizes.size(), 0);
  desc.strides[1] = vector.strides[0];
  return desc;
}

TensorDesc with_dim(TensorDesc desc, size_t position) {
  const int64_t stride =
      position < desc.sizes.size() ? desc.sizes[position] * desc.strides[position] : 1;
  desc.sizes.insert(desc.sizes.begin() + static_cast<std::ptrdiff_t>(position), 1);
  desc.strides.insert(desc.strides.begin() + static_cast<std::ptrdiff_t>(position), stride);
  return desc;
}

std::optional<std::array<int64_t, 2>> pair_of(const Sizes& values) {
  if (values.size() == 1) return std::array{values[0], values[0]};
  if (values.size() == 2) return std::array{values[0], values[1]};
  return std::nullopt;
}

bool emit_chain(CallReader& call, std::vector<TensorRef> inputs, std::vector<ChainStep> steps) {
  const auto result = call.result();
  if (!result || result->dtype.code != inputs[0].desc.dtype.code) return false;
  for (TensorRef& input : inputs) {
    const auto desc = expanded(input.desc, result->sizes);
    if (!desc) return false;
    input.desc = *desc;
  }
  Chain chain{static_cast<int>(inputs.size()), std::move(steps), {}};
  chain.outputs = {chain.inputs + static_cast<int>(chain.steps.size()) - 1};
  call.emit_result(chain, inputs, *result);
  return true;
}

std::optional<Pool> pool_of(const CallReader& call, size_t first) {
  Pool pool;
  const auto kernel = pair_of(call.integers(first));
  Sizes strides = call.integers(first + 1);
  if (strides.empty()) strides = call.integers(first);
  const auto stride = pair_of(strides);
  const auto padding = pair_of(call.integers(first + 2));
  if (!kernel || !stride || !padding) return std::nullopt;
  pool.kernel = *kernel;
  pool.stride = *stride;
  pool.padding = *padding;
  pool.far_padding = *padding;
  return pool;
}

}  // namespace nimble
