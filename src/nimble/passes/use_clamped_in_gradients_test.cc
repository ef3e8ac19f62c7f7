#include "nimble/passes/use_clamped_in_gradients.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

class UseClampedInGradients : public PassTest {
 protected:
  static constexpr Activation kRelu6{ActivationKind::kClamp, 0, 6};

  static Tensor gradient(NetworkWriter& w, const Tensor& behind, const Tensor& input,
                         const Activation& activation = kRelu6) {
    return w.op(Chain{2, {gradient_step(activation, 0, 1)}, {2}}, {behind, input},
                input.desc.sizes);
  }
  MemoryId read_by_last() const { return graph.ops.back().operands[1].memory; }
};

TEST_F(UseClampedInGradients, TheInputIsNotReadAnyMore) {
  NetworkWriter w;
  const Tensor x = w.scaled(w.input({2, 3}), 9);
  const Tensor clamped = w.activation(x, kRelu6);
  w.output(clamped);
  w.output(gradient(w, w.input({2, 3}), x));
  run(w, use_clamped_in_gradients);
  EXPECT_EQ(read_by_last(), clamped.memory);
}

TEST_F(UseClampedInGradients, NotWithOtherBounds) {
  NetworkWriter w;
  const Tensor x = w.scaled(w.input({2, 3}), 9);
  w.output(w.activation(x, kRelu6));
  w.output(gradient(w, w.input({2, 3}), x, {ActivationKind::kClamp, 0, 5}));
  run(w, use_clamped_in_gradients);
  EXPECT_EQ(read_by_last(), x.memory);
}

TEST_F(UseClampedInGradients, NotWhereTheInputIsKeptAnyway) {
  NetworkWriter w;
  const Tensor x = w.scaled(w.input({2, 3}), 9);
  const Tensor clamped = w.activation(x, kRelu6);
  w.output(w.add(x, clamped));
  w.output(gradient(w, w.input({2, 3}), x));
  run(w, use_clamped_in_gradients);
  EXPECT_EQ(read_by_last(), x.memory);
}

}  // namespace
}  // namespace nimble::testing
