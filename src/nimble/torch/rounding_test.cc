#include "nimble/torch/rounding.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

namespace nimble {
namespace {

bool explains(const RoundingResponse& response, const Observed& run, size_t result) {
  return response.explains(response.difference(run, result), result);
}

bool explains_most(const RoundingResponse& response, const Observed& run) {
  std::vector<double> differences;
  for (size_t i = 0; i < run.results(); ++i) differences.push_back(response.difference(run, i));
  return response.explains_most(differences);
}

using Tensors = std::vector<at::Tensor>;

// Gradients of an attention whose inputs are all parameters. That of the key's bias is zero but for
// rounding: a softmax does not see what is added to a whole row.
struct Attention {
  enum { kTable, kQuery, kKey, kKeyBias, kValue };
  Tensors parameters;
  double scale = 0.25;

  Attention() {
    at::manual_seed(0);
    parameters = {at::randn({12, 16}), at::randn({16, 16}), at::randn({16, 16}), at::randn({16}),
                  at::randn({16, 16})};
  }
  Attention in(at::ScalarType type) const {
    Attention copy = *this;
    for (at::Tensor& p : copy.parameters) p = p.to(type);
    return copy;
  }
  Attention rounded(int variant) const {
    Attention copy = *this;
    for (at::Tensor& p : copy.parameters) round_differently((p = p.clone()).storage(), variant);
    return copy;
  }
  Observed run() const {
    Tensors p;
    for (const at::Tensor& parameter : parameters)
      p.push_back(parameter.detach().clone().requires_grad_());
    const at::Tensor query = at::mm(p[kTable], p[kQuery]);
    const at::Tensor key = at::addmm(p[kKeyBias], p[kTable], p[kKey]);
    const at::Tensor weights = at::softmax(at::mm(query, key.t()) * scale, -1);
    at::mm(weights, at::mm(p[kTable], p[kValue])).pow(2).mean().backward();
    Observed run;
    for (const at::Tensor& parameter : p) run.outputs.push_back(parameter.grad().to(at::kFloat));
    return run;
  }
};

struct Judged {
  Attention attention;
  Observed expected = attention.run();
  RoundingResponse response{expected, /*has_backward=*/true};

  explicit Judged(int roundings) {
    for (int variant = 0; variant < roundings; ++variant)
      response.add(attention.rounded(variant).run());
  }
  bool explains(const Observed& run) const {
    for (size_t i = 0; i < expected.results(); ++i)
      if (!nimble::explains(response, run, i)) return false;
    return true;
  }
};

class Rounding : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Runs, Rounding, testing::Values(1, 4));

TEST_P(Rounding, ExplainsADifferenceThatIsNothingElse) {
  const Judged judged(GetParam());
  const Observed exact = judged.attention.in(at::kDouble).run();
  const double off = judged.response.difference(exact, Attention::kKeyBias);
  EXPECT_GT(off / judged.response.size(Attention::kKeyBias), 1e-2) << "it would be found off";
  EXPECT_TRUE(judged.explains(exact));
}

TEST_P(Rounding, DoesNotExplainAWrongScale) {
  Judged judged(GetParam());
  judged.attention.scale *= 1.001;
  EXPECT_FALSE(judged.explains(judged.attention.run()));
}

TEST_P(Rounding, DoesNotExplainAnyWrongGradient) {
  const Judged judged(GetParam());
  for (size_t i = 0; i < judged.expected.outputs.size(); ++i) {
    const std::vector<std::function<void(at::Tensor&)>> faults = {
        [](at::Tensor& t) { t.mul_(t.abs().max().item<float>() < 1e-4 ? 1e3 : 1.001); },
        [](at::Tensor& t) { t.select(0, 0).add_(1e-2); },
        [](at::Tensor& t) { t.fill_(NAN); },
    };
    for (const auto& fault : faults) {
      Observed run = judged.attention.run();
      fault(run.outputs[i]);
      EXPECT_FALSE(judged.explains(run)) << "of parameter " << i;
    }
  }
}

// A unit that is now on the other side of a relu, in one of the runs.
TEST(RoundingRuns, TheFurthestCounts) {
  Observed expected;
  expected.outputs = {at::ones({8})};
  Observed still = expected, moved = expected, ours = expected;
  moved.outputs = {at::ones({8}) + 1e-2};
  ours.outputs = {at::ones({8}) + 2e-2};
  RoundingResponse response(expected, /*has_backward=*/true);
  response.add(still);
  EXPECT_FALSE(explains(response, ours, 0));
  response.add(moved);
  response.add(still);
  EXPECT_TRUE(explains(response, ours, 0));
  EXPECT_EQ(response.runs(), 3);
}

// A step of full length, up or down, as rounding has it.
TEST(RoundingRuns, ExplainWhatHasNoDigits) {
  Observed expected;
  expected.outputs = {at::ones({8}), at::ones({8})};
  Observed moved = expected, ours = expected;
  moved.outputs[1] = -at::ones({8});
  RoundingResponse response(expected, /*has_backward=*/true);
  response.add(moved);
  at::Tensor other_side = at::ones({8});
  other_side[3] = -1;
  ours.outputs = {other_side, other_side};
  EXPECT_TRUE(explains(response, ours, 1));
  EXPECT_FALSE(explains(response, ours, 0)) << "this one does not move";
}

// What a run with many results gives, and one from inputs that were rounded differently.
struct Chaos {
  Observed expected = ones();
  RoundingResponse response{expected, /*has_backward=*/true};

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

TEST(RoundingRuns, ExplainAQuarterOrTwiceWhatTheResultItselfMovedBy) {
  for (const auto& [first, most] : std::vector<std::pair<double, double>>{
           {1e-3, 16e-3}, {0.05, 0.25}, {0.2, 0.4}, {0.6, 1.2}}) {
    const Chaos chaos(first);
    EXPECT_TRUE(explains(chaos.response, chaos.off_by(0.9 * most), 0)) << first;
    EXPECT_FALSE(explains(chaos.response, chaos.off_by(1.1 * most), 0)) << first;
    EXPECT_FALSE(explains(chaos.response, chaos.off_by(0.55), 1)) << first;
  }
}

TEST(RoundingRuns, OfOneResultDoNotExplainThatMostAreOff) {
  const Chaos chaos(0.27);
  EXPECT_TRUE(explains_most(chaos.response, chaos.off_by(15e-3)));
  EXPECT_FALSE(explains_most(chaos.response, chaos.off_by(17e-3)));
  Observed one_is_off = chaos.off_by(1e-3);
  one_is_off.outputs[0] = one_is_off.outputs[0] * 1.5;
  EXPECT_TRUE(explains_most(chaos.response, one_is_off));
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
  RoundingResponse response(expected, /*has_backward=*/true);
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
  ours.written = {expected.written[0] * 1.05};
  wrong.written = {expected.written[0] * 1.2};
  RoundingResponse response(expected, /*has_backward=*/true);
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
