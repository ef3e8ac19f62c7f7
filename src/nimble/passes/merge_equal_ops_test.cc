#include "nimble/passes/merge_equal_ops.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

using MergeEqualOps = PassTest;

// relu, relu, tanh of each, their sum -> relu, tanh, sum
TEST_F(MergeEqualOps, EqualOpsAndWhatFollowsFromThem) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3});
  const Tensor a = w.activation(w.relu(x), {ActivationKind::kTanh});
  const Tensor b = w.activation(w.relu(x), {ActivationKind::kTanh});
  w.output(w.add(a, b));
  run(w, merge_equal_ops);
  EXPECT_EQ(ops(), "relu, tanh, add");
}

TEST_F(MergeEqualOps, OtherAttributesInputsOrViewsAreNotEqual) {
  NetworkWriter w;
  const Tensor x = w.input({2, 2});
  Tensor transposed = x;
  std::swap(transposed.desc.strides[0], transposed.desc.strides[1]);
  w.output(w.relu(x));
  w.output(w.relu(w.input({2, 2})));
  w.output(w.relu(transposed));
  w.output(w.scaled(x, 2));
  w.output(w.scaled(x, 3));
  run(w, merge_equal_ops);
  EXPECT_EQ(graph.ops.size(), 5u);
}

TEST_F(MergeEqualOps, TheFirstTakesOverTheOutputOfTheSecond) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3});
  const Tensor a = w.relu(x);
  const Tensor b = w.scaled(a, 2);
  const Tensor again = w.relu(x);
  w.output(again);
  w.output(w.add(b, a));
  run(w, merge_equal_ops);
  EXPECT_EQ(ops(), "relu, mul_scalar, add");
  EXPECT_EQ(graph.ops[0].operands.back().memory, again.memory);
}

TEST_F(MergeEqualOps, TwoOutputsStayTwo) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3});
  w.output(w.relu(x));
  w.output(w.relu(x));
  run(w, merge_equal_ops);
  EXPECT_EQ(ops(), "relu, relu");
}

TEST_F(MergeEqualOps, NotWhereTheInputChangesInBetween) {
  NetworkWriter w;
  const Tensor x = w.relu(w.input({2, 3}));
  const Tensor a = w.scaled(x, 2);
  w.framework("aten::add_", {x}, {1});
  const Tensor b = w.scaled(x, 2);
  w.output(w.add(a, b));
  graph = w.finish();
  graph.ops[2].operands[0].writes = true;
  relink(graph);
  merge_equal_ops(graph);
  EXPECT_EQ(ops(), "relu, mul_scalar, aten::add_, mul_scalar, add");
}

TEST_F(MergeEqualOps, NotWhereTheFrameworkReadsTheSecond) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3});
  const Tensor a = w.relu(x);
  w.output(w.framework("aten::sort", {w.relu(x)}, {2, 3}));
  w.output(w.scaled(a, 2));
  graph = w.finish();
  merge_equal_ops(graph);
  EXPECT_EQ(ops(), "relu, relu, aten::sort, mul_scalar");
}

}  // namespace
}  // namespace nimble::testing
