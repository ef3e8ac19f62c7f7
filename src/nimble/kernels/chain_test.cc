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

// Products of two values of these, so that gradients are not all alike.
void all_pairs(const std::vector<float>& values, std::vector<float>& x, std::vector<float>& y) {
  for (float first : values) {
    for (float second : values) {
      x.push_back(first);
      y.push_back(second);
    }
  }
}

TEST(Chain, ActivationGradientsOnExtremeValues) {
  on_every_target([] {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> x;
    std::vector<float> y;
    all_pairs({0.0f, -0.0f, 1.0f,  -1.0f, 0.5f,  -0.5f, 3.0f,   -3.0f,    2.999f,    -2.999f,
               6.0f, 7.5f,  -7.5f, 20.0f, -9.0f, 1e-3f, -1e-9f, infinity, -infinity, nan},
              x, y);
    for (int kind = 0; kind <= static_cast<int>(ActivationKind::kGeluTanh); ++kind) {
      ChainStep step = make_step(ChainOp::kActivationGradient);
      step.activation = {static_cast<ActivationKind>(kind), -0.5f, 3.0f};
      const bool is_gelu = step.activation.kind == ActivationKind::kGeluErf ||
                           step.activation.kind == ActivationKind::kGeluTanh;
      if (!is_gelu) {
        check(step, x, y, 6e-6f);
        continue;
      }
      // Near -∞ terms cancel, as in the framework; there, small is right.
      std::vector<float> kept_x;
      std::vector<float> kept_y;
      for (size_t i = 0; i < x.size(); ++i) {
        if (y[i] < -1 && std::isfinite(y[i])) continue;
        kept_x.push_back(x[i]);
        kept_y.push_back(y[i]);
      }
      check(step, kept_x, kept_y, 1e-5f);
    }
  });
}

TEST(Chain, ComparisonsAndSelectionOnExtremeValues) {
  on_every_target([] {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> x;
    std::vector<float> y;
    all_pairs({0.0f, -0.0f, 1.0f, -1.0f, 2.0f, 1e-40f, infinity, -infinity, nan}, x, y);
    for (ChainOp op : {ChainOp::kLess, ChainOp::kLessEqual, ChainOp::kEqual, ChainOp::kSelect})
      check(make_step(op), x, y, 0);
    for (float value : {0.0f, 1.0f, infinity, nan})
      for (ChainOp op : {ChainOp::kLessScalar, ChainOp::kLessEqualScalar, ChainOp::kGreaterScalar,
                         ChainOp::kGreaterEqualScalar, ChainOp::kEqualScalar})
        check(make_step(op, value), x, y, 0);
    for (float value : {-0.5f, 0.0f, 0.25f, 0.5f, 1.0f}) {
      check(make_step(ChainOp::kAddMul, value), x, y, 0);
      check(make_step(ChainOp::kAddDiv, value), x, y, 0);
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

ChainStep step(ChainOp op, int x, int y = -1, int z = -1, float value = 0) {
  return {.op = op, .x = x, .y = y, .z = z, .value = value, .activation = {}};
}

// Runs a chain whose output o is in the memory of input targets[o], and the plain loops beside.
void check_in_place(const Chain& chain, const std::vector<TensorDesc>& inputs,
                    const std::vector<size_t>& targets) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> number(0.1f, 1);
  std::vector<TensorDesc> operands = inputs;
  std::vector<std::vector<float>> buffers;
  for (const TensorDesc& desc : inputs) {
    buffers.emplace_back(static_cast<size_t>(desc.end_byte()) / sizeof(float));
    for (float& value : buffers.back()) value = number(random);
  }
  std::vector<std::vector<float>> wanted;
  for (size_t target : targets) {
    operands.push_back(inputs[target]);
    wanted.push_back(buffers[target]);
  }
  std::vector<void*> data;
  for (auto& buffer : buffers) data.push_back(buffer.data());
  for (auto& buffer : wanted) data.push_back(buffer.data());
  chain_reference(chain, operands, data.data());
  for (size_t o = 0; o < targets.size(); ++o) data[inputs.size() + o] = buffers[targets[o]].data();
  run_whole(chain, operands, data);
  for (size_t o = 0; o < targets.size(); ++o)
    for (size_t i = 0; i < wanted[o].size(); ++i)
      ASSERT_NEAR(buffers[targets[o]][i], wanted[o][i], 2e-6f)
          << describe(chain) << " output " << o << " element " << i;
}

std::vector<TensorDesc> parameter_shapes() {
  return {dense({1}),
          dense({5000}),
          dense({64}),
          dense({33, 7, 3, 3}),
          image(2, 24, 5, 7),
          image(2, 24, 5, 7, 40),
          image(1, 200, 5, 7, 260),
          image(3, 1100, 1, 2),
          dense({3, 5, 1}),
          dense({3, 9001}),
          TensorDesc{.dtype = cases::float32(), .sizes = {9, 8, 7}, .strides = {3, 200, 24}}};
}

// An output in the memory of an input, read again after the step that makes the output.
TEST(Chain, WorksInPlace) {
  const std::vector<Chain> chains = {
      {2, {step(ChainOp::kAdd, 0, 1)}, {2}},
      {2, {step(ChainOp::kMul, 0, 1), step(ChainOp::kSub, 2, 0)}, {2, 3}},
      {2, {step(ChainOp::kExp, 0), step(ChainOp::kSub, 1, 0), step(ChainOp::kMul, 3, 2)}, {2, 4}},
      {2, {}, {1, 0}},
      {2, {step(ChainOp::kAddScalar, 1, -1, -1, 2)}, {1, 2}},
  };
  on_every_target([&] {
    for (const TensorDesc& desc : parameter_shapes())
      for (const Chain& chain : chains)
        for (bool swapped : {false, true}) {
          const std::vector<size_t> targets =
              swapped ? std::vector<size_t>{1, 0} : std::vector<size_t>{0, 1};
          check_in_place(chain, {desc, desc},
                         {targets.begin(),
                          targets.begin() + static_cast<std::ptrdiff_t>(chain.outputs.size())});
        }
  });
}

// One number in memory, seen with the sizes of a parameter.
TensorDesc number_like(const TensorDesc& parameter) {
  TensorDesc number = parameter;
  std::fill(number.strides.begin(), number.strides.end(), 0);
  return number;
}

// SGD with momentum, Nesterov's rule and weight decay, as torch.optim.SGD computes it. The learning
// rate is in memory. Inputs: parameter, gradient, momentum buffer, rate.
Chain sgd_update(bool nesterov) {
  Chain chain{4,
              {step(ChainOp::kMulScalar, 0, -1, -1, 1e-2f), step(ChainOp::kAdd, 1, 4),
               step(ChainOp::kMulScalar, 2, -1, -1, 0.9f), step(ChainOp::kAdd, 6, 5)},
              {}};
  int direction = 7;
  if (nesterov) {
    chain.steps.push_back(step(ChainOp::kMulScalar, 7, -1, -1, 0.9f));
    chain.steps.push_back(step(ChainOp::kAdd, 5, 8));
    direction = 9;
  }
  const int next = 4 + static_cast<int>(chain.steps.size());
  chain.steps.push_back(step(ChainOp::kMul, direction, 3));
  chain.steps.push_back(step(ChainOp::kSub, 0, next));
  chain.outputs = {next + 1, 7};
  return chain;
}

// AdamW as torch.optim computes it with a step count and rate in memory (capturable). Inputs:
// parameter, gradient, first and second moment, 1 - rate * decay, -rate / correction1,
// sqrt(correction2).
Chain adam_update() {
  return {7,
          {step(ChainOp::kMul, 0, 4), step(ChainOp::kLerpScalar, 2, 1, -1, 0.1f),
           step(ChainOp::kMulScalar, 3, -1, -1, 0.999f), step(ChainOp::kAddMul, 9, 1, 1, 0.001f),
           step(ChainOp::kSqrt, 10), step(ChainOp::kMul, 6, 5), step(ChainOp::kDiv, 11, 12),
           step(ChainOp::kRdivScalar, 5, -1, -1, 1e-8f), step(ChainOp::kAdd, 13, 14),
           step(ChainOp::kAddDiv, 7, 8, 15, 1.0f)},
          {16, 8, 10}};
}

TEST(Chain, OptimizersUpdateInPlace) {
  on_every_target([] {
    for (const TensorDesc& desc : parameter_shapes()) {
      const TensorDesc number = number_like(desc);
      for (bool nesterov : {false, true})
        check_in_place(sgd_update(nesterov), {desc, desc, desc, number}, {0, 2});
      check_in_place(adam_update(), {desc, desc, desc, desc, number, number, number}, {0, 2, 3});
    }
  });
}

}  // namespace
}  // namespace nimble
