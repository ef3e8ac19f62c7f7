#include "nimble/torch/folded_constants.h"

#include <utility>

#include "nimble/base/error.h"
#include "nimble/passes/rewrite.h"
#include "nimble/torch/replay_guard.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {
namespace {

at::Tensor evaluate(const ChainStep& step, const std::vector<at::Tensor>& registers) {
  const at::Tensor& x = registers[static_cast<size_t>(step.x)];
  const auto y = [&] { return registers[static_cast<size_t>(step.y)]; };
  const auto z = [&] { return registers[static_cast<size_t>(step.z)]; };
  switch (step.op) {
    case ChainOp::kAdd:
      return at::add(x, y());
    case ChainOp::kSub:
      return at::sub(x, y());
    case ChainOp::kMul:
      return at::mul(x, y());
    case ChainOp::kMulAdd:
      return at::add(at::mul(x, y()), z());
    case ChainOp::kAddScalar:
      return at::add(x, step.value);
    case ChainOp::kMulScalar:
      return at::mul(x, step.value);
    case ChainOp::kNeg:
      return at::neg(x);
    case ChainOp::kRsqrt:
      return at::rsqrt(x);
    default:
      throw Refused("an op on constants has no call of the framework's");
  }
}

}  // namespace

FoldedConstants::FoldedConstants(const Plan& plan, const std::vector<at::Tensor>& named)
    : plan_(plan), watch_(plan, named), parameters_(watch_.states()) {
  fill();
}

void FoldedConstants::refresh() {
  if (!watch_.changed_since(parameters_, /*all_samples=*/false)) return;
  // Taken first, so that a change meanwhile shows at the next call, and kept last.
  std::vector<ParameterWatch::State> parameters = watch_.states();
  fill();
  parameters_ = std::move(parameters);
}

void FoldedConstants::fill() {
  const FrameworkDispatch dispatch;
  const Graph& graph = plan_.graph;
  const auto tensor = [&](const Operand& operand) {
    const BufferId buffer = graph.memories[operand.memory.index].buffer;
    return make_tensor(graph.desc_of(operand), plan_.recording.storages[buffer.index]);
  };
  for (const Op& op : graph.constant_ops) {
    at::Tensor result = tensor(op.operands.back());
    if (attributes_of<Copy>(op)) {
      result.copy_(tensor(op.operands[0]));
      continue;
    }
    const auto* chain = attributes_of<Chain>(op);
    if (!chain || chain->outputs.size() != 1)
      throw Refused(message(op.name, ": an op on constants has no call of the framework's"));
    std::vector<at::Tensor> registers;
    for (int i = 0; i < chain->inputs; ++i)
      registers.push_back(tensor(op.operands[static_cast<size_t>(i)]));
    for (const ChainStep& step : chain->steps) registers.push_back(evaluate(step, registers));
    result.copy_(registers[static_cast<size_t>(chain->outputs[0])]);
  }
}

size_t FoldedConstants::bytes() const {
  size_t bytes = 0;
  for (const Op& op : plan_.graph.constant_ops)
    bytes += plan_.graph.memories[op.operands.back().memory.index].bytes;
  return bytes;
}

}  // namespace nimble
