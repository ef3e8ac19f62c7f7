#include "nimble/passes/commit_updates.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "nimble/graph/validate.h"
#include "nimble/passes/chain_steps.h"
#include "nimble/passes/test_program.h"

namespace nimble {
namespace {

using testing::ProgramWriter;
using testing::Tensor;

const Chain kSum{2, {chain_step(ChainOp::kAdd, 0, 1)}, {2}};

// Marks `value` as what `target` holds in the end.
void update(Graph& graph, const Tensor& target, const Tensor& value) {
  graph.memories[target.memory.index].is_updated = true;
  graph.memories[value.memory.index].is_output = true;
  graph.updates.push_back({target.memory, {value.memory, add_view(graph, value.desc)}});
}

std::vector<float> contents(Graph graph, const Tensor& tensor) {
  graph.outputs = {{tensor.memory, add_view(graph, tensor.desc)}};
  return testing::evaluate(graph).front();
}

size_t copies_in(const Graph& graph) {
  return static_cast<size_t>(std::count_if(graph.ops.begin(), graph.ops.end(), [](const Op& op) {
    return attributes_of<Copy>(op) != nullptr;
  }));
}

// p' = p + g; then p' is read  ->  p = p + g in place; p is read
TEST(CommitUpdates, TheOpThatMakesThemWritesInPlace) {
  ProgramWriter w;
  const Tensor p = w.constant({3, 4});
  const Tensor g = w.input({3, 4});
  const Tensor old = w.op(kSum, {p, p}, {3, 4});
  const Tensor made = w.op(kSum, {p, g}, {3, 4});
  const Tensor read = w.op(kSum, {made, old}, {3, 4});
  w.output(read);
  Graph graph = w.finish();
  update(graph, p, made);
  EXPECT_FALSE(Uses(graph).is_constant(p.memory));
  const std::vector<float> expected = contents(graph, made);
  const std::vector<float> expected_read = contents(graph, read);
  commit_updates(graph);
  EXPECT_EQ(validate_graph(graph), std::vector<std::string>());
  EXPECT_TRUE(graph.updates.empty());
  EXPECT_EQ(copies_in(graph), 0u);
  EXPECT_EQ(contents(graph, p), expected);
  EXPECT_EQ(contents(graph, read), expected_read);
}

// p' = p + g; p is read  ->  a copy at the end
TEST(CommitUpdates, OldContentsAreReadBeforeTheyAreOverwritten) {
  ProgramWriter w;
  const Tensor p = w.constant({3, 4});
  const Tensor g = w.input({3, 4});
  const Tensor made = w.op(kSum, {p, g}, {3, 4});
  const Tensor old = w.op(kSum, {p, p}, {3, 4});
  w.output(old);
  Graph graph = w.finish();
  update(graph, p, made);
  const std::vector<float> expected = contents(graph, made);
  const std::vector<float> expected_old = contents(graph, old);
  commit_updates(graph);
  EXPECT_EQ(copies_in(graph), 1u);
  EXPECT_EQ(contents(graph, p), expected);
  EXPECT_EQ(contents(graph, old), expected_old);
}

// An op that needs other elements of what it would overwrite  ->  a copy at the end
TEST(CommitUpdates, OnlyElementwiseOpsWriteWhatTheyRead) {
  ProgramWriter w;
  const Tensor p = w.constant({4, 4});
  const Tensor made = w.op(MatMul{}, {p, p}, {4, 4});
  Tensor transposed = p;
  std::swap(transposed.desc.strides[0], transposed.desc.strides[1]);
  const Tensor q = w.constant({4, 4});
  Tensor q_transposed = q;
  q_transposed.desc = transposed.desc;
  const Tensor turned = w.op(kSum, {q_transposed, p}, {4, 4});
  Graph graph = w.finish();
  update(graph, p, made);
  update(graph, q, turned);
  const std::vector<float> expected = contents(graph, made);
  const std::vector<float> expected_turned = contents(graph, turned);
  commit_updates(graph);
  EXPECT_EQ(copies_in(graph), 2u);
  EXPECT_EQ(contents(graph, p), expected);
  EXPECT_EQ(contents(graph, q), expected_turned);
}

// p *= g in place by somebody else; p' = p + g  ->  both in place, in that order
TEST(CommitUpdates, FollowsAnUpdateInPlace) {
  ProgramWriter w;
  const Tensor p = w.constant({3, 4});
  const Tensor g = w.input({3, 4});
  w.update(Chain{2, {chain_step(ChainOp::kMul, 0, 1)}, {2}}, {p, g}, p);
  const Tensor made = w.op(kSum, {p, g}, {3, 4});
  Graph graph = w.finish();
  update(graph, p, made);
  const std::vector<float> expected = contents(graph, made);
  commit_updates(graph);
  EXPECT_EQ(copies_in(graph), 0u);
  EXPECT_EQ(contents(graph, p), expected);
}

// p' = p + g; then somebody else writes p  ->  a copy at the end
TEST(CommitUpdates, IsNotOverwrittenByAnUpdateInPlace) {
  ProgramWriter w;
  const Tensor p = w.constant({3, 4});
  const Tensor g = w.input({3, 4});
  const Tensor made = w.op(kSum, {p, g}, {3, 4});
  w.update(Chain{2, {chain_step(ChainOp::kMul, 0, 1)}, {2}}, {p, g}, p);
  Graph graph = w.finish();
  update(graph, p, made);
  const std::vector<float> expected = contents(graph, made);
  commit_updates(graph);
  EXPECT_EQ(copies_in(graph), 1u);
  EXPECT_EQ(contents(graph, p), expected);
}

// What is returned besides must not be the user's memory.
TEST(CommitUpdates, AnOutputStaysItsOwn) {
  ProgramWriter w;
  const Tensor p = w.constant({3, 4});
  const Tensor made = w.op(kSum, {p, p}, {3, 4});
  w.output(made);
  Graph graph = w.finish();
  update(graph, p, made);
  const std::vector<float> expected = contents(graph, made);
  commit_updates(graph);
  EXPECT_EQ(graph.outputs[0].memory, made.memory);
  EXPECT_TRUE(graph.memories[made.memory.index].is_output);
  EXPECT_EQ(contents(graph, p), expected);
  EXPECT_EQ(contents(graph, made), expected);
}

}  // namespace
}  // namespace nimble
