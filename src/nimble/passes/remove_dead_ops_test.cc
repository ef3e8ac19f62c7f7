#include "nimble/passes/remove_dead_ops.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

using RemoveDeadOps = PassTest;

// relu, tanh of it; sigmoid is the output -> sigmoid
TEST_F(RemoveDeadOps, WhatNobodyReadsGoesWithAllBehindIt) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3});
  w.activation(w.relu(x), {ActivationKind::kTanh});
  w.output(w.activation(x, {ActivationKind::kSigmoid}));
  run(w, remove_dead_ops);
  EXPECT_EQ(ops(), "sigmoid");
}

TEST_F(RemoveDeadOps, OutputsAndOpsOfTheFrameworkStay) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3});
  w.framework("aten::print", {w.relu(x)}, {2, 3});
  w.output(w.scaled(x, 2));
  graph = w.finish();
  remove_dead_ops(graph);
  EXPECT_EQ(ops(), "relu, aten::print, mul_scalar");
}

TEST_F(RemoveDeadOps, OpsOnConstantsGoIfTheirResultIsNotRead) {
  NetworkWriter w;
  const Tensor x = w.input({2});
  const Tensor used = w.scaled(w.constant({2}), 2);
  w.scaled(w.scaled(w.constant({2}), 3), 4);
  w.output(w.add(x, used));
  graph = w.finish();
  for (size_t i : {0, 1, 2}) {
    graph.memories[graph.ops[i].operands.back().memory.index].role = Role::kFolded;
    graph.constant_ops.push_back(graph.ops[i]);
  }
  graph.ops.erase(graph.ops.begin(), graph.ops.begin() + 3);
  relink(graph);
  remove_dead_ops(graph);
  EXPECT_EQ(graph.constant_ops.size(), 1u);
  EXPECT_EQ(ops(), "add");
}

}  // namespace
}  // namespace nimble::testing
