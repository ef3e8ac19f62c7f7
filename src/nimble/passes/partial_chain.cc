#include "nimble/passes/partial_chain.h"

#include <utility>
#include <vector>

#include "nimble/passes/rewrite.h"

namespace nimble {
namespace {

constexpr size_t kMostSteps = 4;
constexpr int64_t kMuchSmaller = 8;

int64_t distinct_elements(const TensorDesc& desc) {
  int64_t count = 1;
  for (size_t d = 0; d < desc.sizes.size(); ++d)
    if (desc.strides[d] != 0) count *= desc.sizes[d];
  return count;
}

}  // namespace

std::optional<Op> maker_of_output(const Op& maker, size_t output,
                                  const std::function<bool(const ChainStep&)>& allowed) {
  const Chain& chain = *chain_of(maker);
  const auto inputs = static_cast<size_t>(chain.inputs);
  std::vector<bool> needed(inputs + chain.steps.size());  // registers
  needed[static_cast<size_t>(chain.outputs[output])] = true;
  size_t steps = 0;
  for (size_t i = chain.steps.size(); i-- > 0;) {
    if (!needed[inputs + i]) continue;
    const ChainStep& step = chain.steps[i];
    if (!allowed(step) || ++steps > kMostSteps) return std::nullopt;
    for (int value : {step.x, step.y, step.z})
      if (value >= 0) needed[static_cast<size_t>(value)] = true;
  }
  if (steps == 0) return std::nullopt;

  Op op = maker;
  op.operands.clear();
  Chain part;
  std::vector<int> place(needed.size(), -1);  // of registers, in the part
  for (size_t i = 0; i < inputs; ++i) {
    if (!needed[i]) continue;
    place[i] = part.inputs++;
    op.operands.push_back(maker.operands[i]);
  }
  for (size_t i = 0; i < chain.steps.size(); ++i) {
    if (!needed[inputs + i]) continue;
    ChainStep step = chain.steps[i];
    for (int* value : {&step.x, &step.y, &step.z})
      if (*value >= 0) *value = place[static_cast<size_t>(*value)];
    place[inputs + i] = part.inputs + static_cast<int>(part.steps.size());
    part.steps.push_back(step);
  }
  part.outputs = {place[static_cast<size_t>(chain.outputs[output])]};
  op.operands.push_back(maker.operands[inputs + output]);
  op.attributes = std::move(part);
  return op;
}

bool is_one_instruction(const ChainStep& step) {
  switch (step.op) {
    case ChainOp::kAdd:
    case ChainOp::kSub:
    case ChainOp::kMul:
    case ChainOp::kMulAdd:
    case ChainOp::kAddScalar:
    case ChainOp::kMulScalar:
      return true;
    default:
      return false;
  }
}

std::optional<size_t> output_in(const Op& maker, MemoryId memory) {
  const Chain& chain = *chain_of(maker);
  for (size_t i = 0; i < chain.outputs.size(); ++i)
    if (maker.operands[static_cast<size_t>(chain.inputs) + i].memory == memory) return i;
  return std::nullopt;
}

bool is_image_beside(const TensorDesc& input, const TensorDesc& result) {
  return distinct_elements(input) * kMuchSmaller > distinct_elements(result);
}

}  // namespace nimble
