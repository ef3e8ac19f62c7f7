#include "nimble/passes/recompute_in_readers.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

class RecomputeInReaders : public PassTest {
 protected:
  Tensor image() { return w.input({2, 3, 4, 4}); }
  // activation(x * scale + shift), scale and shift being vectors of channels.
  Tensor normalised(const Tensor& x, const Activation& activation) {
    return w.op(
        Chain{3, {chain_step(ChainOp::kMulAdd, 0, 1, 2), activation_step(activation, 3)}, {4}},
        {x, w.over_channels(w.constant({3}), x), w.over_channels(w.constant({3}), x)},
        x.desc.sizes);
  }
  // gradient where `made` is positive, times `other`.
  Tensor masked(const Tensor& gradient, const Tensor& made, const Tensor& other) {
    return w.op(Chain{3, {gradient_step(kRelu, 0, 1), chain_step(ChainOp::kMul, 3, 2)}, {4}},
                {gradient, made, other}, made.desc.sizes);
  }
  bool reads(size_t op, const Tensor& tensor) const {
    for (const Operand& operand : graph.ops[op].operands)
      if (operand.reads && operand.memory == tensor.memory) return true;
    return false;
  }
  NetworkWriter w;
};

TEST_F(RecomputeInReaders, AMaskOfWhatIsReadAsWell) {
  const Tensor x = image();
  const Tensor made = normalised(x, kRelu);
  w.output(w.pool(made, w.pool3x3(Pool::Kind::kMax)));
  w.output(masked(image(), made, x));
  run(w, recompute_in_readers);
  EXPECT_EQ(ops(), "muladd relu, max pool 3x3, muladd relu relu_backward mul");
  EXPECT_FALSE(reads(2, made));
}

TEST_F(RecomputeInReaders, AndWhatNobodyElseReadsIsNotMade) {
  const Tensor x = image();
  w.output(masked(image(), normalised(x, kRelu), x));
  run(w, recompute_in_readers);
  EXPECT_EQ(ops(), "muladd relu relu_backward mul");
}

TEST_F(RecomputeInReaders, InSums) {
  const Tensor x = image();
  const Tensor made = normalised(x, kRelu);
  w.output(w.pool(made, w.pool3x3(Pool::Kind::kMax)));
  w.output(w.op(ChainSums{.chain = {2, {chain_step(ChainOp::kMul, 0, 1)}, {}}, .sums = {2}},
                {made, x}, {2, 3}));
  run(w, recompute_in_readers);
  EXPECT_EQ(ops(), "muladd relu, max pool 3x3, channel sums of muladd relu mul");
}

// One image is read in place of another, which then need not be kept.
TEST_F(RecomputeInReaders, WhatIsOnlyReadThere) {
  const Tensor made = normalised(image(), kRelu);
  const Tensor other = w.pool(image(), w.pool3x3(Pool::Kind::kMax));
  w.output(masked(image(), made, other));
  run(w, recompute_in_readers);
  EXPECT_EQ(ops(), "max pool 3x3, muladd relu relu_backward mul");
}

TEST_F(RecomputeInReaders, NotFromMoreImagesThanItSaves) {
  const Tensor made = w.relu(w.add(image(), image()));
  w.output(w.pool(made, w.pool3x3(Pool::Kind::kMax)));
  w.output(masked(image(), made, image()));
  const std::string before = "add, relu, max pool 3x3, relu_backward mul";
  run(w, recompute_in_readers);
  EXPECT_EQ(ops(), before);
}

TEST_F(RecomputeInReaders, NotWhatTakesLong) {
  const Tensor x = image();
  const Tensor made = normalised(x, {ActivationKind::kSilu});
  w.output(w.pool(made, w.pool3x3(Pool::Kind::kMax)));
  w.output(masked(image(), made, x));
  run(w, recompute_in_readers);
  EXPECT_EQ(ops(), "muladd silu, max pool 3x3, relu_backward mul");
}

TEST_F(RecomputeInReaders, NotWhatIsAResultOfTheProgram) {
  const Tensor x = image();
  const Tensor made = normalised(x, kRelu);
  w.output(made);
  w.output(masked(image(), made, x));
  run(w, recompute_in_readers);
  EXPECT_TRUE(reads(1, made));
}

}  // namespace
}  // namespace nimble::testing
