#include "nimble/torch/framework_kernels.h"

#include <ATen/ATen.h>

#include "nimble/base/error.h"
#include "nimble/torch/replay_guard.h"

namespace nimble {
namespace {

at::Tensor tensor_at(void* data, const TensorDesc& desc) {
  return at::from_blob(data, desc.sizes, desc.strides, at::TensorOptions().dtype(at::kFloat));
}

void apply(const Activation& activation, at::Tensor& x) {
  switch (activation.kind) {
    case ActivationKind::kNone:
      return;
    case ActivationKind::kRelu:
      x.relu_();
      return;
    case ActivationKind::kClamp:
      x.clamp_(activation.a, activation.b);
      return;
    case ActivationKind::kLeakyRelu:
      at::leaky_relu_(x, activation.a);
      return;
    case ActivationKind::kElu:
      at::elu_(x, activation.a);
      return;
    case ActivationKind::kHardSwish:
      at::hardswish_(x);
      return;
    case ActivationKind::kHardSigmoid:
      at::hardsigmoid_(x);
      return;
    case ActivationKind::kSilu:
      at::silu_(x);
      return;
    case ActivationKind::kSigmoid:
      x.sigmoid_();
      return;
    case ActivationKind::kTanh:
      x.tanh_();
      return;
    case ActivationKind::kGeluErf:
      at::gelu_(x);
      return;
    case ActivationKind::kGeluTanh:
      at::gelu_(x, "tanh");
      return;
  }
}

class FrameworkKernel : public Kernel {
 public:
  FrameworkKernel(const OpAttributes& attributes, std::span<const TensorDesc> operands)
      : attributes_(attributes), operands_(operands.begin(), operands.end()) {}
  Work work() const override { return {}; }

 protected:
  void finish(at::Tensor result, const Epilogue& epilogue, const KernelArguments& arguments) const {
    const size_t last = operands_.size() - 1;
    apply(epilogue.first, result);
    if (epilogue.add) result.add_(tensor_at(arguments.operands[last - 1], operands_[last - 1]));
    apply(epilogue.last, result);
    tensor_at(arguments.operands[last], operands_[last]).copy_(result);
  }

  OpAttributes attributes_;
  std::vector<TensorDesc> operands_;
};

class FrameworkConvolution : public FrameworkKernel {
 public:
  using FrameworkKernel::FrameworkKernel;
  std::string name() const override { return "torch.convolution"; }
  void run(const KernelArguments& arguments) const override {
    const auto& conv = std::get<Convolution>(attributes_);
    const FrameworkDispatch dispatch;
    at::Tensor input = tensor_at(arguments.operands[0], operands_[0]);
    if (conv.relu_input) input = at::relu(input);
    if (conv.scale_input) {
      const size_t scale = conv.scale_operand();
      input = at::mul(input, tensor_at(arguments.operands[scale], operands_[scale]));
    }
    const at::Tensor weight = tensor_at(arguments.operands[1], operands_[1]);
    const at::Tensor bias =
        conv.bias ? tensor_at(arguments.operands[2], operands_[2]) : at::Tensor();
    const at::Tensor result = at::convolution(input, weight, bias, conv.stride, conv.padding,
                                              conv.dilation, false, {0, 0}, conv.groups);
    finish(result, conv.epilogue, arguments);
  }
};

class FrameworkMatMul : public FrameworkKernel {
 public:
  using FrameworkKernel::FrameworkKernel;
  std::string name() const override { return "torch.matmul"; }
  void run(const KernelArguments& arguments) const override {
    const auto& matmul = std::get<MatMul>(attributes_);
    const FrameworkDispatch dispatch;
    const at::Tensor a = tensor_at(arguments.operands[0], operands_[0]);
    const at::Tensor b = tensor_at(arguments.operands[1], operands_[1]);
    const at::Tensor result =
        matmul.bias
            ? at::addmm(tensor_at(arguments.operands[2], operands_[2]), a, b, 1, matmul.alpha)
            : at::mm(a, b);
    finish(result, matmul.epilogue, arguments);
  }
};

// A tensor of which only the shape matters.
at::Tensor shape_of(const TensorDesc& desc) {
  return at::empty_strided(desc.sizes, desc.strides, at::TensorOptions().dtype(at::kFloat));
}

class FrameworkConvolutionBackward : public FrameworkKernel {
 public:
  using FrameworkKernel::FrameworkKernel;
  std::string name() const override { return "torch.convolution_backward"; }
  void run(const KernelArguments& arguments) const override {
    const FrameworkDispatch dispatch;
    const auto at = [&](size_t i) { return tensor_at(arguments.operands[i], operands_[i]); };
    if (const auto* conv = std::get_if<ConvolutionBackwardInput>(&attributes_)) {
      const at::Tensor result = std::get<0>(
          backward(*conv, at(0), shape_of(operands_[2]), at(1), {}, {true, false, false}));
      at(2).copy_(result);
      return;
    }
    const auto& conv = std::get<ConvolutionBackwardWeight>(attributes_);
    const auto [none, weight, bias] =
        backward(conv, at(1), at(0), shape_of(operands_[2]), operands_[2].sizes.front(),
                 {false, true, conv.bias});
    at(2).copy_(weight);
    if (conv.bias) at(3).copy_(bias);
  }

 private:
  template <class Attributes>
  static std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(
      const Attributes& conv, const at::Tensor& gradient, const at::Tensor& input,
      const at::Tensor& weight, at::OptionalIntArrayRef bias_sizes, std::array<bool, 3> wanted) {
    return at::convolution_backward(gradient, input, weight, bias_sizes, conv.stride, conv.padding,
                                    conv.dilation, false, {0, 0}, conv.groups, wanted);
  }
};

// Whether the framework's padding, the same at both ends, gives the output's size.
template <class Attributes>
bool has_even_padding(const Attributes& conv, const TensorDesc& input, const TensorDesc& weight,
                      const TensorDesc& output) {
  for (size_t d : {0, 1}) {
    const int64_t reach = conv.dilation[d] * (weight.sizes[2 + d] - 1) + 1;
    const int64_t padded = input.sizes[2 + d] + 2 * conv.padding[d];
    if (padded < reach || (padded - reach) / conv.stride[d] + 1 != output.sizes[2 + d])
      return false;
  }
  return true;
}

}  // namespace

std::vector<KernelPtr> framework_candidates(const OpAttributes& attributes,
                                            std::span<const TensorDesc> operands) {
  if (operands.back().numel() == 0) return {};
  if (const auto* conv = std::get_if<Convolution>(&attributes)) {
    if (!has_even_padding(*conv, operands[0], operands[1], operands.back())) return {};
    return {std::make_shared<FrameworkConvolution>(attributes, operands)};
  }
  if (const auto* conv = std::get_if<ConvolutionBackwardInput>(&attributes)) {
    if (!has_even_padding(*conv, operands[2], operands[1], operands[0])) return {};
    return {std::make_shared<FrameworkConvolutionBackward>(attributes, operands)};
  }
  if (const auto* conv = std::get_if<ConvolutionBackwardWeight>(&attributes)) {
    if (!has_even_padding(*conv, operands[0], operands[2], operands[1])) return {};
    return {std::make_shared<FrameworkConvolutionBackward>(attributes, operands)};
  }
  if (const auto* matmul = std::get_if<MatMul>(&attributes)) {
    if (operands.back().sizes.size() != 2 || (!matmul->bias && matmul->alpha != 1)) return {};
    return {std::make_shared<FrameworkMatMul>(attributes, operands)};
  }
  return {};
}

}  // namespace nimble
