#include "nimble/passes/fold_constants.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

using FoldConstants = PassTest;

const auto fold = [](Graph& graph) { fold_constants(graph); };

// x + tanh(2 * constant) -> add, two ops ahead of time
TEST_F(FoldConstants, WhatNeedsOnlyConstantsIsComputedAhead) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3});
  const Tensor c = w.activation(w.scaled(w.constant({2, 3}), 2), {ActivationKind::kTanh});
  w.output(w.add(x, c));
  run(w, fold);
  EXPECT_EQ(ops(), "add");
  ASSERT_EQ(graph.constant_ops.size(), 2u);
  EXPECT_EQ(graph.memories[c.memory.index].role, Role::kFolded);
}

TEST_F(FoldConstants, OutputsAndWhatDependsOnInputsStay) {
  NetworkWriter w;
  w.output(w.relu(w.constant({2, 3})));
  w.output(w.relu(w.input({2, 3})));
  run(w, fold);
  EXPECT_EQ(ops(), "relu, relu");
  EXPECT_TRUE(graph.constant_ops.empty());
}

TEST_F(FoldConstants, AChangedParameterIsNoConstant) {
  NetworkWriter w;
  const Tensor parameter = w.constant({2, 3});
  w.framework("aten::add_", {parameter}, {1});
  const Tensor doubled = w.scaled(parameter, 2);
  w.output(w.add(w.input({2, 3}), doubled));
  graph = w.finish();
  graph.ops[0].operands[0].writes = true;
  relink(graph);
  fold_constants(graph);
  EXPECT_EQ(ops(), "aten::add_, mul_scalar, add");
}

TEST_F(FoldConstants, OpsOfTheFrameworkOnlyIfToldSo) {
  NetworkWriter w;
  const Tensor a = w.framework("aten::permute_copy", {w.constant({2, 3})}, {2, 3});
  const Tensor b = w.framework("aten::rand_like", {w.constant({2, 3})}, {2, 3});
  w.output(w.add(w.add(w.input({2, 3}), a), b));
  graph = w.finish();
  Graph untold = graph;
  fold_constants(untold);
  EXPECT_TRUE(untold.constant_ops.empty());
  fold_constants(graph, {[](const Op& op) { return op.name == "aten::permute_copy"; }});
  EXPECT_EQ(ops(), "aten::rand_like, add, add");
  EXPECT_EQ(graph.constant_ops.size(), 1u);
}

TEST_F(FoldConstants, WhatDrawsFromAGeneratorStays) {
  NetworkWriter w;
  const Tensor a = w.framework("aten::dropout", {w.constant({2, 3})}, {2, 3});
  w.output(w.add(w.input({2, 3}), a));
  graph = w.finish();
  const MemoryId generator = add_memory(graph, 0, Role::kGenerator);
  const ViewId view = add_view(graph, row_major({6, 4, "float32"}, {0}));
  graph.ops[0].operands.push_back(reading(generator, view));
  relink(graph);
  fold_constants(graph, {[](const Op&) { return true; }});
  EXPECT_EQ(ops(), "aten::dropout, add");
}

}  // namespace
}  // namespace nimble::testing
