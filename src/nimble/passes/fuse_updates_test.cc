#include "nimble/passes/fuse_updates.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

using FuseUpdates = PassTest;

Chain binary(ChainOp op, float value = 0) {
  ChainStep step = chain_step(op, 0, 1);
  step.value = value;
  return {2, {step}, {2}};
}
Chain by_number(ChainOp op, float value) {
  return {1, {scalar_step(op, 0, value)}, {1}};
}

// One number, seen with the sizes of a parameter.
Tensor everywhere(Tensor number, const Tensor& like) {
  number.desc.sizes = like.desc.sizes;
  number.desc.strides.assign(like.desc.sizes.size(), 0);
  return number;
}

struct SgdParameter {
  Tensor parameter, gradient, momentum, decayed;
};

// g = g + decay * p; m *= 0.9; m += g; p += -rate * m  ->  one chain that writes m and p
TEST_F(FuseUpdates, MomentumAndParameter) {
  NetworkWriter w;
  const Tensor rate = w.input({1});
  std::vector<SgdParameter> list;
  for (int64_t size : {3, 5}) {
    const Tensor p = w.constant({size, 4});
    list.push_back({p, w.input({size, 4}), w.constant({size, 4}), {}});
  }
  // Step by step for all parameters, as torch.optim does with lists.
  for (SgdParameter& each : list)
    each.decayed = w.add(each.gradient, w.scaled(each.parameter, 0.01f));
  for (const SgdParameter& each : list)
    w.update(by_number(ChainOp::kMulScalar, 0.9f), {each.momentum}, each.momentum);
  for (const SgdParameter& each : list)
    w.update(binary(ChainOp::kAdd), {each.momentum, each.decayed}, each.momentum);
  for (const SgdParameter& each : list)
    w.update(Chain{3, {chain_step(ChainOp::kMul, 1, 2), chain_step(ChainOp::kSub, 0, 3)}, {4}},
             {each.parameter, each.momentum, everywhere(rate, each.parameter)}, each.parameter);
  for (const SgdParameter& each : list) {
    w.output(each.parameter);
    w.output(each.momentum);
  }
  run(w, fuse_updates);
  ASSERT_EQ(graph.ops.size(), 2u);
  for (const Op& op : graph.ops) {
    EXPECT_EQ(attributes_of<Chain>(op)->outputs.size(), 2u);
    EXPECT_EQ(op.operands.size(), 6u);
  }
}

// Both moments, the denominator and the parameter -> one chain that writes three memories
TEST_F(FuseUpdates, Adam) {
  NetworkWriter w;
  const Tensor p = w.constant({6, 4});
  const Tensor g = w.input({6, 4});
  const Tensor m = w.constant({6, 4});
  const Tensor v = w.constant({6, 4});
  const Tensor correction = everywhere(w.constant({1}), p);
  const Tensor rate = everywhere(w.constant({1}), p);
  w.update(binary(ChainOp::kLerpScalar, 0.1f), {m, g}, m);
  w.update(by_number(ChainOp::kMulScalar, 0.999f), {v}, v);
  ChainStep square = chain_step(ChainOp::kAddMul, 0, 1, 1);
  square.value = 0.001f;
  w.update(Chain{2, {square}, {2}}, {v, g}, v);
  const Tensor root = w.op(Chain{1, {chain_step(ChainOp::kSqrt, 0)}, {1}}, {v}, {6, 4});
  const Tensor divided = w.binary(ChainOp::kDiv, root, correction);
  w.update(by_number(ChainOp::kAddScalar, 1e-8f), {divided}, divided);
  const Tensor scaled = w.binary(ChainOp::kMul, m, rate);
  ChainStep change = chain_step(ChainOp::kAddDiv, 0, 1, 2);
  change.value = -1;
  w.update(Chain{3, {change}, {3}}, {p, scaled, divided}, p);
  for (const Tensor& t : {p, m, v}) w.output(t);
  run(w, fuse_updates);
  ASSERT_EQ(graph.ops.size(), 1u);
}

// m is read before it changes again.
TEST_F(FuseUpdates, NotAroundAReader) {
  NetworkWriter w;
  const Tensor m = w.constant({3, 4});
  w.update(by_number(ChainOp::kMulScalar, 0.9f), {m}, m);
  w.output(w.op(Reduce{.kind = Reduce::Kind::kSum, .dims = {0}}, {m}, {1, 4}));
  w.update(by_number(ChainOp::kAddScalar, 1), {m}, m);
  w.output(m);
  run(w, fuse_updates);
  EXPECT_EQ(ops(), "mul_scalar, sum, add_scalar");
}

// g changes between the two that are to be one.
TEST_F(FuseUpdates, NotWhereAnInputChangesInBetween) {
  NetworkWriter w;
  const Tensor m = w.constant({3, 4});
  const Tensor g = w.constant({3, 4});
  w.update(binary(ChainOp::kAdd), {m, g}, m);
  w.update(Copy{}, {w.input({3, 4})}, g);
  w.update(by_number(ChainOp::kMulScalar, 0.9f), {m}, m);
  w.output(m);
  w.output(g);
  run(w, fuse_updates);
  EXPECT_EQ(ops(), "add, copy, mul_scalar");
}

// The second reads more than the first changed.
TEST_F(FuseUpdates, NotOfAPart) {
  NetworkWriter w;
  const Tensor m = w.constant({4, 4});
  Tensor half = m;
  half.desc.sizes = {2, 4};
  w.update(by_number(ChainOp::kMulScalar, 0.9f), {half}, half);
  w.update(by_number(ChainOp::kAddScalar, 1), {m}, m);
  w.output(m);
  run(w, fuse_updates);
  EXPECT_EQ(ops(), "mul_scalar, add_scalar");
}

// Each element is read by its neighbour after it changed.
TEST_F(FuseUpdates, NotTransposed) {
  NetworkWriter w;
  const Tensor m = w.constant({4, 4});
  Tensor turned = m;
  std::swap(turned.desc.strides[0], turned.desc.strides[1]);
  w.update(by_number(ChainOp::kMulScalar, 0.9f), {m}, m);
  w.output(w.add(m, turned));
  w.output(m);
  run(w, fuse_updates);
  EXPECT_EQ(ops(), "mul_scalar, add");
}

}  // namespace
}  // namespace nimble::testing
