#include "nimble/base/op_attributes.h"

#include <iterator>

#include "nimble/base/error.h"

namespace nimble {
namespace {

std::string name_of(const Activation& activation) {
  switch (activation.kind) {
    case ActivationKind::kNone:
      return "";
    case ActivationKind::kRelu:
      return "relu";
    case ActivationKind::kClamp:
      return message("clamp[", activation.a, ",", activation.b, "]");
    case ActivationKind::kLeakyRelu:
      return "leaky_relu";
    case ActivationKind::kElu:
      return "elu";
    case ActivationKind::kHardSwish:
      return "hardswish";
    case ActivationKind::kHardSigmoid:
      return "hardsigmoid";
    case ActivationKind::kSilu:
      return "silu";
    case ActivationKind::kSigmoid:
      return "sigmoid";
    case ActivationKind::kTanh:
      return "tanh";
    case ActivationKind::kGeluErf:
      return "gelu";
    case ActivationKind::kGeluTanh:
      return "gelu_tanh";
  }
  return "?";
}

std::string after(const Activation& activation) {
  const std::string text = name_of(activation);
  return text.empty() ? text : " " + text;
}

std::string after(const Epilogue& epilogue) {
  return after(epilogue.first) + (epilogue.add ? " add" : "") + after(epilogue.last);
}

const char* name_of(ChainOp op) {
  static constexpr const char* kNames[] = {"add",
                                           "sub",
                                           "mul",
                                           "div",
                                           "maximum",
                                           "minimum",
                                           "pow",
                                           "less",
                                           "less_equal",
                                           "equal",
                                           "lerp_scalar",
                                           "",
                                           "muladd",
                                           "select",
                                           "addcmul",
                                           "addcdiv",
                                           "lerp",
                                           "add_scalar",
                                           "mul_scalar",
                                           "pow_scalar",
                                           "rsub_scalar",
                                           "rdiv_scalar",
                                           "less_scalar",
                                           "less_equal_scalar",
                                           "greater_scalar",
                                           "greater_equal_scalar",
                                           "equal_scalar",
                                           "neg",
                                           "abs",
                                           "square",
                                           "reciprocal",
                                           "exp",
                                           "log",
                                           "sqrt",
                                           "rsqrt",
                                           "erf",
                                           "sin",
                                           "cos",
                                           ""};
  static_assert(std::size(kNames) == static_cast<size_t>(ChainOp::kActivation) + 1);
  return kNames[static_cast<size_t>(op)];
}

template <class AnyConvolution>
std::string window_of(const AnyConvolution& conv) {
  std::string text;
  if (conv.stride[0] != 1 || conv.stride[1] != 1)
    text += message(" stride ", conv.stride[0], "x", conv.stride[1]);
  if (conv.dilation[0] != 1 || conv.dilation[1] != 1)
    text += message(" dilation ", conv.dilation[0], "x", conv.dilation[1]);
  if (conv.groups != 1) text += message(" groups ", conv.groups);
  return text;
}

struct Describer {
  std::string operator()(const Convolution& conv) const {
    std::string text = message("convolution", window_of(conv));
    if (conv.relu_input) text += " of relu";
    if (conv.scale_input) text += " of scaled";
    return text + after(conv.epilogue);
  }
  std::string operator()(const ConvolutionBackwardInput& conv) const {
    return message("convolution backward input", window_of(conv));
  }
  std::string operator()(const ConvolutionBackwardWeight& conv) const {
    return message("convolution backward weight", window_of(conv), conv.bias ? " and bias" : "");
  }
  std::string operator()(const SeparableConvolution& both) const {
    return "separable " + (*this)(both.depthwise) + ", 1x1" + after(both.pointwise.epilogue);
  }
  std::string operator()(const MatMul& matmul) const {
    return (matmul.bias ? "matmul bias" : "matmul") + after(matmul.epilogue);
  }
  std::string operator()(const Pool& pool) const {
    return message(pool.kind == Pool::Kind::kMax ? "max" : "average", " pool ", pool.kernel[0], "x",
                   pool.kernel[1]) +
           after(pool.epilogue);
  }
  std::string operator()(const AdaptivePool& pool) const {
    return pool.kind == Pool::Kind::kMax ? "adaptive max pool" : "adaptive average pool";
  }
  std::string operator()(const Chain& chain) const {
    std::string text;
    for (const ChainStep& step : chain.steps) {
      if (!text.empty()) text += " ";
      text += step.op == ChainOp::kActivation           ? name_of(step.activation)
              : step.op == ChainOp::kActivationGradient ? name_of(step.activation) + "_backward"
                                                        : name_of(step.op);
    }
    return text;
  }
  std::string operator()(const Reduce& reduce) const {
    static constexpr const char* kNames[] = {"sum", "mean", "max", "min"};
    return kNames[static_cast<size_t>(reduce.kind)];
  }
  std::string operator()(const Softmax& softmax) const {
    return softmax.log ? "log_softmax" : "softmax";
  }
  std::string operator()(const LayerNorm& norm) const {
    return (norm.rms ? "rms_norm" : "layer_norm") + after(norm.activation);
  }
  std::string operator()(const GroupNorm& norm) const {
    return "group_norm" + after(norm.activation);
  }
  std::string operator()(const Embedding&) const { return "embedding"; }
  std::string operator()(const Attention&) const { return "attention"; }
  std::string operator()(const Resize& resize) const {
    return resize.kind == Resize::Kind::kNearest ? "nearest resize" : "bilinear resize";
  }
  std::string operator()(const Copy&) const { return "copy"; }
  std::string operator()(const Pad&) const { return "pad"; }
  std::string operator()(const Concatenation&) const { return "concatenation"; }
  std::string operator()(const ChainSums& sums) const {
    const std::string text = (*this)(sums.chain);
    return text.empty() ? "channel sums" : "channel sums of " + text;
  }
  std::string operator()(const ChannelMoments&) const { return "channel moments"; }
  std::string operator()(const BatchStatistics&) const { return "batch statistics"; }
  std::string operator()(const MaxPoolIndices& indices) const {
    return (*this)(indices.pool) + " with indices";
  }
  std::string operator()(const PoolGradient& gradient) const {
    return (*this)(gradient.pool) + " backward";
  }
  std::string operator()(const AdaptivePoolGradient&) const {
    return "adaptive average pool backward";
  }
  std::string operator()(const SoftmaxGradient& softmax) const {
    return softmax.log ? "log_softmax backward" : "softmax backward";
  }
  std::string operator()(const NllLoss&) const { return "nll_loss"; }
  std::string operator()(const NllLossGradient&) const { return "nll_loss backward"; }
  std::string operator()(const LayerNormGradient&) const { return "layer_norm backward"; }
  std::string operator()(const EmbeddingGradient&) const { return "embedding backward"; }
};

struct OutputCount {
  size_t operator()(const Chain& chain) const { return chain.outputs.size(); }
  size_t operator()(const ChainSums& sums) const {
    return sums.chain.outputs.size() + sums.sums.size();
  }
  size_t operator()(const ChannelMoments&) const { return 2; }
  size_t operator()(const BatchStatistics& statistics) const { return statistics.running ? 4 : 2; }
  size_t operator()(const MaxPoolIndices&) const { return 2; }
  size_t operator()(const NllLoss&) const { return 2; }
  size_t operator()(const LayerNorm& norm) const { return norm.statistics ? 3 : 1; }
  size_t operator()(const ConvolutionBackwardWeight& op) const { return op.bias ? 2 : 1; }
  template <class Other>
  size_t operator()(const Other&) const {
    return 1;
  }
};

}  // namespace

size_t output_count(const OpAttributes& attributes) {
  return std::visit(OutputCount{}, attributes);
}

size_t updated_count(const OpAttributes& attributes) {
  const auto* statistics = std::get_if<BatchStatistics>(&attributes);
  return statistics && statistics->running ? 2 : 0;
}

std::string describe(const OpAttributes& attributes) {
  return std::visit(Describer{}, attributes);
}

}  // namespace nimble
