#include "nimble/passes/images.h"

#include <algorithm>
#include <array>

#include "nimble/kernels/kernel.h"
#include "nimble/passes/rewrite.h"

namespace nimble {
namespace {

constexpr int64_t kFewChannels = 4;  // the first convolution of a network reads any strides

struct ImageOperands {
  const Graph& graph;
  const Op& op;

  std::vector<size_t> operator()(const Convolution& convolution) const {
    const bool any_strides =
        convolution.groups == 1 && sizes(0).size() == 4 && sizes(0)[1] <= kFewChannels;
    return images(!any_strides, convolution.addend_operand(), convolution.epilogue.add);
  }
  std::vector<size_t> operator()(const SeparableConvolution& both) const {
    return images(true, 3 + both.depthwise.bias + both.pointwise.bias, both.pointwise.epilogue.add);
  }
  std::vector<size_t> operator()(const Pool& pool) const {
    return images(true, 1, pool.epilogue.add);
  }
  std::vector<size_t> operator()(const AdaptivePool&) const { return images(true, 1, false); }
  std::vector<size_t> operator()(const Resize&) const { return images(true, 1, false); }
  std::vector<size_t> operator()(const GroupNorm& norm) const {
    return images(true, 1 + norm.weight + norm.bias, false);
  }
  std::vector<size_t> operator()(const ConvolutionBackwardInput&) const { return {0, 2}; }
  std::vector<size_t> operator()(const ConvolutionBackwardWeight& backward) const {
    if (backward.groups == 1 && sizes(0)[1] <= kFewChannels) return {1};
    return first(2);
  }
  std::vector<size_t> operator()(const ChannelMoments&) const { return first(1); }
  std::vector<size_t> operator()(const MaxPoolIndices&) const { return first(3); }
  std::vector<size_t> operator()(const PoolGradient&) const { return first(op.operands.size()); }
  std::vector<size_t> operator()(const AdaptivePoolGradient&) const { return first(2); }
  template <class Other>
  std::vector<size_t> operator()(const Other&) const {
    return {};
  }

 private:
  std::vector<size_t> first(size_t count) const {
    std::vector<size_t> operands;
    if (sizes(0).size() == 4)
      for (size_t i = 0; i < count; ++i) operands.push_back(i);
    return operands;
  }
  const std::vector<int64_t>& sizes(size_t operand) const {
    return graph.desc_of(op.operands[operand]).sizes;
  }
  std::vector<size_t> images(bool input, size_t next, bool addend) const {
    if (sizes(0).size() != 4) return {};
    std::vector<size_t> operands;
    if (input) operands.push_back(0);
    operands.push_back(next);  // the addend or the output
    if (addend) operands.push_back(next + 1);
    return operands;
  }
};

}  // namespace

TensorDesc channels_last(const DType& dtype, const std::vector<int64_t>& sizes) {
  const int64_t c = sizes[1];
  const int64_t h = sizes[2];
  const int64_t w = sizes[3];
  return {.dtype = dtype, .sizes = sizes, .strides = {h * w * c, 1, w * c, c}};
}

std::optional<TensorDesc> as_image(const TensorDesc& desc) {
  if (desc.sizes.size() != 4) return std::nullopt;
  const int64_t n = desc.sizes[0];
  const int64_t c = desc.sizes[1];
  const int64_t h = desc.sizes[2];
  const int64_t w = desc.sizes[3];
  const auto& strides = desc.strides;
  const int64_t pixel = w > 1 ? strides[3] : h > 1 ? strides[2] : n > 1 ? strides[0] : c;
  if (pixel < c) return std::nullopt;
  TensorDesc image = desc;
  image.strides = {h * w * pixel, 1, w * pixel, pixel};
  for (size_t d = 0; d < 4; ++d)
    if (desc.sizes[d] > 1 && strides[d] != image.strides[d]) return std::nullopt;
  return image;
}

std::vector<size_t> image_operands(const Graph& graph, const Op& op) {
  if (!op.attributes || op.operands.empty()) return {};
  return std::visit(ImageOperands{graph, op}, *op.attributes);
}

bool has_channels_last(const TensorDesc& desc) {
  if (desc.sizes.size() != 4) return false;
  if (desc.sizes[1] != 1 && desc.strides[1] != 1) return false;
  for (size_t d : {2, 3})
    if (desc.sizes[d] != 1 && desc.strides[d] < desc.sizes[1]) return false;
  return true;
}

bool is_pointwise(const Graph& graph, const Op& op) {
  constexpr std::array<int64_t, 2> kZeros = {0, 0};
  constexpr std::array<int64_t, 2> kOnes = {1, 1};
  const auto* convolution = attributes_of<Convolution>(op);
  if (convolution == nullptr || convolution->groups != 1 || convolution->relu_input ||
      convolution->scale_input || convolution->stride != kOnes || convolution->padding != kZeros)
    return false;
  const auto& kernel = graph.desc_of(op.operands[1]).sizes;
  const auto& input = graph.desc_of(op.operands[0]).sizes;
  const auto& output = graph.desc_of(op.operands.back()).sizes;
  return input.size() == 4 && kernel[2] == 1 && kernel[3] == 1 && input[2] == output[2] &&
         input[3] == output[3];
}

bool has_kernel(const Op& op, const std::vector<TensorDesc>& views) {
  return !kernel_candidates(*op.attributes, views).empty();
}

bool kernels_take(const Graph& graph, const Op& op, const std::vector<TensorDesc>& changed) {
  if (std::holds_alternative<Concatenation>(*op.attributes)) return true;
  if (has_kernel(op, changed)) return true;
  std::vector<TensorDesc> now;
  for (size_t i = 0; i < changed.size(); ++i) now.push_back(graph.desc_of(op.operands[i]));
  return !has_kernel(op, now);
}

}  // namespace nimble
