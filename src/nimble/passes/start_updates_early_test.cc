#include "nimble/passes/start_updates_early.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

using StartUpdatesEarly = PassTest;

Chain minus() {
  return {2, {chain_step(ChainOp::kSub, 0, 1)}, {2}};
}
Chain unary(ChainOp op) {
  return {1, {chain_step(op, 0)}, {1}};
}

// exp, sqrt, p -= exp, q -= sqrt  ->  exp, p -= exp, sqrt, q -= sqrt
TEST_F(StartUpdatesEarly, BehindItsGradient) {
  NetworkWriter w;
  const Tensor p = w.constant({3, 4});
  const Tensor q = w.constant({3, 4});
  const Tensor of_p = w.op(unary(ChainOp::kExp), {w.input({3, 4})}, {3, 4});
  const Tensor of_q = w.op(unary(ChainOp::kSqrt), {of_p}, {3, 4});
  w.update(minus(), {p, of_p}, p);
  w.update(minus(), {q, of_q}, q);
  w.output(p);
  w.output(q);
  run(w, start_updates_early);
  EXPECT_EQ(ops(), "exp, sub, sqrt, sub");
}

// p is read by the gradient of another, so it changes after that.
TEST_F(StartUpdatesEarly, NotBeforeAReaderOfTheOldContents) {
  NetworkWriter w;
  const Tensor p = w.constant({3, 4});
  const Tensor of_p = w.op(unary(ChainOp::kExp), {w.input({3, 4})}, {3, 4});
  const Tensor of_x = w.binary(ChainOp::kMul, of_p, p);
  const Tensor result = w.op(unary(ChainOp::kSqrt), {of_x}, {3, 4});
  w.update(minus(), {p, of_p}, p);
  w.output(p);
  w.output(result);
  run(w, start_updates_early);
  EXPECT_EQ(ops(), "exp, mul, sub, sqrt");
}

// q waits for p's update, so only q's moves.
TEST_F(StartUpdatesEarly, UpdatesOfUpdatesStay) {
  NetworkWriter w;
  const Tensor p = w.constant({3, 4});
  const Tensor q = w.constant({3, 4});
  const Tensor x = w.input({3, 4});
  const Tensor of_p = w.op(unary(ChainOp::kExp), {x}, {3, 4});
  w.update(minus(), {p, of_p}, p);
  const Tensor other = w.op(unary(ChainOp::kSqrt), {of_p}, {3, 4});
  const Tensor last = w.op(unary(ChainOp::kExp), {other}, {3, 4});
  w.update(minus(), {q, p}, q);
  w.output(p);
  w.output(q);
  w.output(last);
  run(w, start_updates_early);
  EXPECT_EQ(ops(), "exp, sub, sub, sqrt, exp");
}

// What the framework computes stays: it may do more than its operands say.
TEST_F(StartUpdatesEarly, OpsOfTheFrameworkStay) {
  NetworkWriter w;
  const Tensor x = w.input({3, 4});
  const Tensor p = w.constant({3, 4});
  const Tensor a = w.op(unary(ChainOp::kExp), {x}, {3, 4});
  const Tensor b = w.op(unary(ChainOp::kSqrt), {a}, {3, 4});
  w.update(minus(), {p, a}, p);
  w.output(b);
  Graph graph = w.finish();
  graph.ops.back().attributes.reset();
  start_updates_early(graph);
  EXPECT_FALSE(graph.ops.back().attributes.has_value());
}

}  // namespace
}  // namespace nimble::testing
