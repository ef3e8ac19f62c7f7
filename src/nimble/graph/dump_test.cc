#include "nimble/graph/dump.h"

#include <gtest/gtest.h>

#include "nimble/graph/relink.h"

namespace nimble {
namespace {

// weight' = 2 * weight ahead of time; convolution 3x3 relu.
TEST(DumpText, OpsOfOursSayWhatTheyDoAndWhatIsDoneAheadOfTime) {
  const DType dtype{6, 4, "float32"};
  Graph graph;
  const auto tensor = [&](std::vector<int64_t> sizes, std::vector<int64_t> strides, Role role) {
    TensorDesc desc{.dtype = dtype, .sizes = std::move(sizes), .strides = std::move(strides)};
    graph.memories.push_back({static_cast<size_t>(desc.end_byte()), role, BufferId(), false});
    graph.views.push_back({BufferId(), desc});
    Operand operand;
    operand.memory = MemoryId(graph.memories.size() - 1);
    operand.view = ViewId(graph.views.size() - 1);
    operand.writes = role == Role::kIntermediate;
    operand.reads = !operand.writes;
    return operand;
  };
  const Operand weight = tensor({2, 1, 3, 3}, {9, 9, 3, 1}, Role::kExternal);
  const Operand folded = tensor({2, 1, 3, 3}, {9, 9, 3, 1}, Role::kFolded);
  const Operand input = tensor({1, 1, 3, 3}, {9, 9, 3, 1}, Role::kInput);
  const Operand output = tensor({1, 2, 1, 1}, {2, 1, 1, 1}, Role::kIntermediate);
  Operand written = folded;
  written.reads = false;
  written.writes = true;

  Op scale;
  scale.attributes = Chain{1, {ChainStep{ChainOp::kMulScalar, 0, -1, -1, 2, {}}}, {1}};
  scale.operands = {weight, written};
  graph.constant_ops.push_back(scale);
  Convolution convolution;
  convolution.epilogue.first = {ActivationKind::kRelu};
  Op op;
  op.attributes = convolution;
  op.operands = {input, folded, output};
  graph.ops.push_back(op);
  relink(graph);

  EXPECT_EQ(dump_text(graph),
            "0: %2 = convolution 3x3 relu(%0: float32[1,1,3,3], %1: float32[2,1,3,3])\n"
            "ahead of time:\n"
            "  %1 = mul_scalar(memory0: float32[2,1,3,3])\n");
  EXPECT_NE(dump_dot(graph).find("convolution 3x3 relu"), std::string::npos);
}

}  // namespace
}  // namespace nimble
