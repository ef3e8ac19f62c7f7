#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <random>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"

// What the generic test does not see of chains: outputs in the memory of inputs, and ops on extreme
// values.
namespace nimble {
namespace {

using cases::dense;
using cases::image;

// Runs `test` on every instruction set of this machine.
template <class Test>
void on_every_target(const Test& test) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    test();
    hwy::SetSupportedTargetsForTest(0);
  }
}

void run_whole(const Chain& chain, const std::vector<TensorDesc>& operands,
               const std::vector<void*>& data) {
  const auto kernels = chain_candidates(chain, operands);
  ASSERT_FALSE(kernels.empty());
  const Part whole = kernels[0]->work().whole();
  std::vector<float> scratch(kernels[0]->scratch_bytes(whole) / sizeof(float) + 1);
  kernels[0]->run({data.data(), nullptr, reinterpret_cast<std::byte*>(scratch.data()), whole});
}

std::vector<float> special_values() {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0f,
                               std::numeric_limits<float>::min(),
                               std::numeric_limits<float>::denorm_min(),
                               1e-40f,
                               1e-20f,
                               1e-8f,
                               1e-3f,
                               0.1f,
                               0.25f,
                               0.5f,
                               0.70710678f,
                               0.99999994f,
                               1.0f,
                               1.0000001f,
                               1.5f,
                               2.0f,
                               2.5f,
                               3.0f,
                               3.1415927f,
                               7.0f,
                               10.0f,
                               31.5f,
                               50.0f,
                               87.3f,
                               88.0f,
                               88.722f,
                               88.73f,
                               90.0f,
                               103.0f,
                               104.5f,
                               1000.0f,
                               8191.0f,
                               8193.0f,
                               1e5f,
                               16777215.0f,
                               16777216.0f,
                               1e10f,
                               1e30f,
                               std::numeric_limits<float>::max(),
                               infinity,
                               std::numeric_limits<float>::quiet_NaN()};
  const size_t positive = values.size();
  for (size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> exponent(-20, 20);
  for (int i = 0; i < 2000; ++i)
    values.push_back((random() % 2 ? 1.0f : -1.0f) * std::exp2(exponent(random)));
  return values;
}

// Relative to the value; below the normal range there are few digits, or none.
bool close(float actual, float wanted, float relative) {
  if (std::isnan(wanted)) return std::isnan(actual);
  if (std::isinf(wanted)) return actual == wanted;
  return std::abs(actual - wanted) <= relative * std::abs(wanted) + (relative > 0 ? 1e-42f : 0.0f);
}

void check(const ChainStep& step, const std::vector<float>& x, const std::vector<float>& y,
           float relative = 1e-6f) {
  const TensorDesc desc = dense({static_cast<int64_t>(x.size())});
  const Chain chain{3, {step}, {3}};
  const std::vector<TensorDesc> operands(4, desc);
  std::vector<float> in[3] = {x, y, y};
  std::vector<float> actual(x.size());
  std::vector<float> wanted(x.size());
  std::vector<void*> data = {in[0].data(), in[1].data(), in[2].data(), wanted.data()};
  chain_reference(chain, operands, data.data());
  data[3] = actual.data();
  run_whole(chain, operands, data);
  int reported = 0;
  for (size_t i = 0; i < x.size() && reported < 5; ++i) {
    if (close(actual[i], wanted[i], relative)) continue;
    ADD_FAILURE() << describe(chain) << " of " << x[i] << ", " << y[i] << " (" << step.value
                  << "): " << actual[i] << ", expected " << wanted[i];
    ++reported;
  }
}

ChainStep make_step(ChainOp op, float value = 0) {
  return {.op = op, .x = 0, .y = 1, .z = 2, .value = value, .activation = {}};
}

TEST(Chain, UnaryOpsOnExtremeValues) {
  on_every_target([] {
    const std::vector<float> x = special_values();
    for (ChainOp op : {ChainOp::kNeg, ChainOp::kAbs, ChainOp::kSquare, ChainOp::kReciprocal,
                       ChainOp::kSqrt, ChainOp::kRsqrt})
      check(make_step(op), x, x, 1e-7f);
    for (ChainOp op : {ChainOp::kExp, ChainOp::kLog, ChainOp::kErf, ChainOp::kSin, ChainOp::kCos})
      check(make_step(op), x, x);
  });
}

TEST(Chain, ActivationsOnExtremeValues) {
  on_every_target([] {
    std::vector<float> x;
    // Where the framework's formulas are no better than ours: e^x below the normal range.
    for (float value : special_values())
      if (!std::isfinite(value) || std::abs(value) < 80) x.push_back(value);
    for (int kind = 0; kind <= static_cast<int>(ActivationKind::kGeluTanh); ++kind) {
      ChainStep step = make_step(ChainOp::kActivation);
      step.activation = {static_cast<ActivationKind>(kind), -0.5f, 3.0f};
      const bool cancels = step.activation.kind == ActivationKind::kGeluErf ||
                           step.activation.kind == ActivationKind::kGeluTanh;
      if (cancels) {  // 1 + erf(x) of a negative x has few digits, as in the framework
        std::vector<float> above;
        for (float value : x)
          if (!(value < -1) && !(std::abs(value) < 1e-30f && value != 0)) above.push_back(value);
        check(step, above, above, 5e-6f);
      } else {
        // Of e^-80 the sixth digit is rounded with x / ln 2.
        const bool is_sigmoid = step.activation.kind == ActivationKind::kSilu ||
                                step.activation.kind == ActivationKind::kSigmoid;
        check(step, x, x, is_sigmoid ? 6e-6f : 3e-6f);
      }
    }
  });
}

TEST(Chain, BinaryOpsOnExtremeValues) {
  on_every_target([] {
    const std::vector<float> values = special_values();
    std::vector<float> x;
    std::vector<float> y;
    for (size_t i = 0; i < 100; ++i) {
      for (size_t k = 0; k < 100; ++k) {
        x.push_back(values[i]);
        y.push_back(values[k]);
      }
    }
    for (ChainOp op : {ChainOp::kAdd, ChainOp::kSub, ChainOp::kMul, ChainOp::kDiv,
                       ChainOp::kMaximum, ChainOp::kMinimum})
      check(make_step(op), x, y, 0);
    check(make_step(ChainOp::kPow), x, y);
  });
}

TEST(Chain, PowersOfNumbers) {
  on_every_target([] {
    const std::vector<float> x = special_values();
    for (float exponent : {0.0f, 1.0f, 2.0f, 3.0f, 4.0f, -1.0f, -2.0f, -3.0f, 0.5f, -0.5f, 1.5f,
                           0.1f, 17.0f, -0.3333f})
      check(make_step(ChainOp::kPowScalar, exponent), x, x);
  });
}

// An output in the memory of an input, read again after the step that makes the output.
TEST(Chain, WorksInPlace) {
  const auto step = [](ChainOp op, int x, int y, float value = 0) {
    return ChainStep{.op = op, .x = x, .y = y, .z = -1, .value = value, .activation = {}};
  };
  const std::vector<Chain> chains = {
      {2, {step(ChainOp::kAdd, 0, 1)}, {2}},
      {2, {step(ChainOp::kMul, 0, 1), step(ChainOp::kSub, 2, 0)}, {2, 3}},
      {2,
       {step(ChainOp::kExp, 0, -1), step(ChainOp::kSub, 1, 0), step(ChainOp::kMul, 3, 2)},
       {2, 4}},
      {2, {}, {1, 0}},
      {2, {step(ChainOp::kAddScalar, 1, -1, 2)}, {1, 2}},
  };
  on_every_target([&] {
    for (const TensorDesc& desc : {dense({5000}), image(2, 24, 5, 7), image(2, 24, 5, 7, 40),
                                   image(1, 200, 5, 7, 260), dense({3, 5, 1})}) {
      for (const Chain& chain : chains) {
        const size_t floats = static_cast<size_t>(desc.end_byte()) / sizeof(float);
        std::mt19937 random(3);
        std::uniform_real_distribution<float> number(-1, 1);
        std::vector<float> buffers[2] = {std::vector<float>(floats), std::vector<float>(floats)};
        for (auto& buffer : buffers)
          for (float& value : buffer) value = number(random);
        const size_t outputs = chain.outputs.size();
        const std::vector<TensorDesc> operands(2 + outputs, desc);
        std::vector<float> wanted[2] = {buffers[0], buffers[1]};
        std::vector<void*> data = {buffers[0].data(), buffers[1].data()};
        for (size_t o = 0; o < outputs; ++o) data.push_back(wanted[o].data());
        chain_reference(chain, operands, data.data());
        for (size_t o = 0; o < outputs; ++o) data[2 + o] = buffers[o].data();
        run_whole(chain, operands, data);
        for (size_t o = 0; o < outputs; ++o)
          for (size_t i = 0; i < floats; ++i)
            ASSERT_NEAR(buffers[o][i], wanted[o][i], 1e-6f) << describe(chain) << " element " << i;
      }
    }
  });
}

}  // namespace
}  // namespace nimble
