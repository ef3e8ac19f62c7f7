#include "nimble/torch/rounding.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace nimble {
namespace {

bool explains(const RoundingResponse& response, const Observed& run, size_t result) {
  return response.explains(response.difference(run, result), result);
}

using Tensors = std::vector<at::Tensor>;

// A unit that is now on the other side of a relu, in one of the runs.
TEST(RoundingRuns, TheFurthestCountsUpToAHundredth) {
  Observed expected;
  expected.outputs = {at::ones({8})};
  Observed still = expected, moved = expected, far = expected, ours = expected;
  moved.outputs = {at::ones({8}) + 1e-4};
  far.outputs = {at::ones({8}) + 1e-2};
  ours.outputs = {at::ones({8}) + 1e-3};
  RoundingResponse response(expected);
  response.add(still);
  EXPECT_FALSE(explains(response, ours, 0));
  response.add(moved);
  response.add(still);
  EXPECT_TRUE(explains(response, ours, 0));
  response.add(far);
  ours.outputs = {at::ones({8}) + 2e-2};
  EXPECT_FALSE(explains(response, ours, 0));
  EXPECT_EQ(response.runs(), 4);
}

// What a run with many results gives, and one from inputs that were rounded differently.
struct Chaos {
  Observed expected = ones();
  RoundingResponse response{expected};

  // The results move by a thousandth, but for the first and the last.
  explicit Chaos(double first) {
    Observed rounded = expected;
    for (int i = 0; i < 9; ++i) rounded.outputs[i] = at::ones({4}) * (i == 0 ? 1 + first : 1.001);
    response.add(rounded);
  }
  static Observed ones() {
    Observed run;
    for (int i = 0; i < 10; ++i) run.outputs.push_back(at::ones({4}));
    return run;
  }
  Observed off_by(double error) const {
    Observed run = expected;
    for (at::Tensor& output : run.outputs) output = output * (1 + error);
    return run;
  }
};

TEST(RoundingRuns, OfOneResultDoNotExplainThatMostAreOff) {
  const Chaos chaos(0.27);
  EXPECT_TRUE(chaos.response.explains_most(chaos.off_by(15e-3)));
  EXPECT_FALSE(chaos.response.explains_most(chaos.off_by(17e-3)));
  Observed one_is_off = chaos.off_by(1e-3);
  one_is_off.outputs[0] = one_is_off.outputs[0] * 1.5;
  EXPECT_TRUE(chaos.response.explains_most(one_is_off));
}

// Parameters are 1, changes of them 1e-4: a unit in the last place is a thousandth of a change.
TEST(RoundingRuns, OfAParameterIsNotARoundedChange) {
  Observed expected;
  expected.outputs = {at::ones({8})};
  expected.before = {at::ones({8})};
  expected.written = {expected.before[0] - 1e-4};
  Observed rounded = expected;
  rounded.before = {at::ones({8}) * (1 + 0x1p-23)};
  rounded.written = {rounded.before[0] - 1e-4};
  RoundingResponse response(expected);
  response.add(rounded);
  EXPECT_EQ(response.own(1), 0);
  Observed run = expected;
  run.written = {expected.before[0] - 1.01e-4};
  EXPECT_FALSE(explains(response, run, 1));
}

// A rate of 1e-5 beside a loss of 1: changes are little, and not noise.
TEST(RoundingRuns, OfAChangeCountsHoweverLittleItIs) {
  Observed expected;
  expected.outputs = {at::ones({8})};
  expected.before = {at::zeros({8})};
  expected.written = {at::full({8}, 1e-5)};
  Observed rounded = expected, ours = expected, wrong = expected;
  rounded.written = {expected.written[0] * 1.01};
  ours.written = {expected.written[0] * 1.005};
  wrong.written = {expected.written[0] * 1.2};
  RoundingResponse response(expected);
  response.add(rounded);
  EXPECT_NEAR(response.own(1), 0.01, 1e-4);
  EXPECT_TRUE(explains(response, ours, 1));
  EXPECT_FALSE(explains(response, wrong, 1));
}

TEST(RoundingRuns, OfCopiesLeavesWhatTheProgramFound) {
  at::Tensor weight = at::randn({5, 7});
  at::Tensor statistic = at::rand({7});
  const Tensors before = {weight.clone(), statistic.clone()};
  const auto program = [&](const Tensors& in) {
    statistic.mul_(0.5).add_(in[0]);
    return Tensors{at::mv(weight, statistic)};
  };
  const at::NoGradGuard no_grad;
  const Recording recording = record_calls(program, {at::rand({7})});
  const Recording copy = on_rounded_copies(recording);
  EXPECT_TRUE(at::equal(weight, before[0]) && at::equal(statistic, before[1]));
  size_t copies = 0;
  for (size_t i = 0; i < recording.external_tensors.size(); ++i) {
    const at::Tensor& found = recording.external_tensors[i];
    if (!found.defined()) continue;
    ++copies;
    const at::Tensor& moved = copy.external_tensors[i];
    EXPECT_FALSE(moved.is_alias_of(found));
    EXPECT_FALSE(at::equal(moved, found));
    EXPECT_TRUE(at::allclose(moved, found, 0x1p-22, 0));
  }
  EXPECT_EQ(copies, 2u);
  ASSERT_EQ(copy.written_externals.size(), 1u);
  EXPECT_FALSE(copy.written_externals[0].is_alias_of(statistic));
}

TEST(RoundingRuns, KeepsTheLargestNumbersFinite) {
  at::Tensor numbers = at::full({64}, -std::numeric_limits<float>::max());
  round_differently(numbers.storage());
  EXPECT_TRUE(at::isfinite(numbers).all().item<bool>());
}

}  // namespace
}  // namespace nimble
