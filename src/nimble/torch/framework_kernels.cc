#include "nimble/torch/framework_kernels.h"

#include <ATen/ATen.h>

#include "nimble/base/error.h"
#include "nimble/torch/replay_guard.h"

namespace nimble {
namespace {

at::Tensor tensor_at(void* data, const TensorDesc& desc) {
  return at::from_blob(data, desc.sizes, desc.strides, at::TensorOptions().dtype(at::kFloat));
}

// last(first(result) + addend) as a chain, and the kernel that computes it.
class EpilogueKernel {
 public:
  EpilogueKernel(const Epilogue& epilogue, const TensorDesc& result, const TensorDesc* addend,
                 const TensorDesc& output) {
    Chain chain{.inputs = addend ? 2 : 1, .steps = {}, .outputs = {}};
    int at = 0;
    const auto append = [&](ChainStep step) {
      chain.steps.push_back(step);
      at = chain.inputs + static_cast<int>(chain.steps.size()) - 1;
    };
    if (epilogue.first.kind != ActivationKind::kNone)
      append({.op = ChainOp::kActivation, .x = at, .activation = epilogue.first});
    if (addend) append({.op = ChainOp::kAdd, .x = at, .y = 1});
    if (epilogue.last.kind != ActivationKind::kNone)
      append({.op = ChainOp::kActivation, .x = at, .activation = epilogue.last});
    std::vector<TensorDesc> operands = {result};
    if (addend) operands.push_back(*addend);
    operands.push_back(output);
    OpAttributes attributes = Copy{};
    if (!chain.steps.empty()) {
      chain.outputs = {at};
      attributes = chain;
    }
    std::vector<KernelPtr> kernels = kernel_candidates(attributes, operands);
    if (!kernels.empty() && kernels.front()->scratch_bytes(kernels.front()->work().whole()) == 0)
      kernel_ = kernels.front();
  }
  bool valid() const { return kernel_ != nullptr; }
  void run(void* result, void* addend, void* output) const {
    void* two[] = {result, output};
    void* three[] = {result, addend, output};
    kernel_->run({addend ? three : two, nullptr, nullptr, kernel_->work().whole()});
  }

 private:
  KernelPtr kernel_;
};

// A result with the strides the framework gives it, for the epilogue to read.
TensorDesc like(const TensorDesc& output, const at::Tensor& result) {
  TensorDesc desc = output;
  desc.offset = 0;
  desc.strides = result.strides().vec();
  return desc;
}

class FrameworkKernel : public Kernel {
 public:
  FrameworkKernel(const OpAttributes& attributes, std::span<const TensorDesc> operands)
      : attributes_(attributes), operands_(operands.begin(), operands.end()) {}
  Work work() const override { return {}; }

 protected:
  const TensorDesc& output() const { return operands_.back(); }
  void finish(const at::Tensor& result, const Epilogue& epilogue,
              const KernelArguments& arguments) const {
    const size_t last = operands_.size() - 1;
    const TensorDesc* addend = epilogue.add ? &operands_[last - 1] : nullptr;
    EpilogueKernel(epilogue, like(output(), result), addend, output())
        .run(result.mutable_data_ptr(), addend ? arguments.operands[last - 1] : nullptr,
             arguments.operands[last]);
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
        matmul.bias ? at::addmm(tensor_at(arguments.operands[2], operands_[2]), a, b, 1, matmul.alpha)
                    : at::mm(a, b);
    finish(result, matmul.epilogue, arguments);
  }
};

// Whether the framework's padding, the same at both ends, gives the output's size.
bool has_even_padding(const Convolution& conv, std::span<const TensorDesc> operands) {
  for (size_t d : {0, 1}) {
    const int64_t reach = conv.dilation[d] * (operands[1].sizes[2 + d] - 1) + 1;
    const int64_t padded = operands[0].sizes[2 + d] + 2 * conv.padding[d];
    if (padded < reach ||
        (padded - reach) / conv.stride[d] + 1 != operands.back().sizes[2 + d])
      return false;
  }
  return true;
}

}  // namespace

std::vector<KernelPtr> framework_candidates(const OpAttributes& attributes,
                                            std::span<const TensorDesc> operands) {
  if (operands.back().numel() == 0) return {};
  if (const auto* conv = std::get_if<Convolution>(&attributes)) {
    if (!has_even_padding(*conv, operands)) return {};
    return {std::make_shared<FrameworkConvolution>(attributes, operands)};
  }
  if (const auto* matmul = std::get_if<MatMul>(&attributes)) {
    if (operands.back().sizes.size() != 2 || (!matmul->bias && matmul->alpha != 1)) return {};
    return {std::make_shared<FrameworkMatMul>(attributes, operands)};
  }
  return {};
}

}  // namespace nimble
