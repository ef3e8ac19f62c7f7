#include "nimble/torch/rounding.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

namespace nimble {
namespace {

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
  Attention rounded() const {
    Attention copy = *this;
    for (at::Tensor& p : copy.parameters) round_differently((p = p.clone()).storage());
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
  Observed rounded = attention.rounded().run();
  RoundingResponse response{expected, rounded, /*has_backward=*/true};

  bool explains(const Observed& run) const {
    for (size_t i = 0; i < expected.results(); ++i)
      if (!response.explains(run, i)) return false;
    return true;
  }
};

TEST(Rounding, ExplainsADifferenceThatIsNothingElse) {
  const Judged judged;
  const Observed exact = judged.attention.in(at::kDouble).run();
  EXPECT_GT(judged.response.error(exact, Attention::kKeyBias), 1e-2) << "it would be found off";
  EXPECT_TRUE(judged.explains(exact));
}

TEST(Rounding, DoesNotExplainAWrongScale) {
  Judged judged;
  judged.attention.scale *= 1.001;
  EXPECT_FALSE(judged.explains(judged.attention.run()));
}

TEST(Rounding, DoesNotExplainAnyWrongGradient) {
  const Judged judged;
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

// What a run with many results gives, and one from inputs that were rounded differently.
struct Chaos {
  Observed expected;
  Observed rounded;

  // The results move by a thousandth, but for the first.
  explicit Chaos(double first) {
    for (int i = 0; i < 9; ++i) {
      expected.outputs.push_back(at::ones({4}));
      rounded.outputs.push_back(at::ones({4}) * (i == 0 ? 1 + first : 1.001));
    }
    expected.outputs.push_back(at::ones({4}));  // does not move
    rounded.outputs.push_back(at::ones({4}));
  }
  Observed off_by(double error) const {
    Observed run = expected;
    for (at::Tensor& output : run.outputs) output = output * (1 + error);
    return run;
  }
};

TEST(Rounding, OfGradientsExplainsAQuarterOrTwiceWhatItDoes) {
  for (const auto& [first, most] :
       std::vector<std::pair<double, double>>{{1e-3, 16e-3}, {0.1, 0.25}, {0.27, 0.54}}) {
    const Chaos chaos(first);
    const RoundingResponse response(chaos.expected, chaos.rounded, /*has_backward=*/true);
    EXPECT_TRUE(response.explains(chaos.off_by(0.9 * most), 0)) << first;
    EXPECT_FALSE(response.explains(chaos.off_by(1.1 * most), 0)) << first;
  }
}

TEST(Rounding, OfOneResultDoesNotExplainThatMostAreOff) {
  const Chaos chaos(0.27);
  const RoundingResponse response(chaos.expected, chaos.rounded, /*has_backward=*/true);
  EXPECT_TRUE(response.explains_most(chaos.off_by(15e-3)));
  EXPECT_FALSE(response.explains_most(chaos.off_by(17e-3)));
  Observed one_is_off = chaos.off_by(1e-3);
  one_is_off.outputs[0] = one_is_off.outputs[0] * 1.5;
  EXPECT_TRUE(response.explains_most(one_is_off));
}

// Parameters are 1, changes of them 1e-4: a unit in the last place is a thousandth of a change.
TEST(Rounding, OfAParameterIsNotARoundedChange) {
  Observed expected;
  expected.outputs = {at::ones({8})};
  expected.before = {at::ones({8})};
  expected.written = {expected.before[0] - 1e-4};
  Observed rounded = expected;
  rounded.before = {at::ones({8}) * (1 + 0x1p-23)};
  rounded.written = {rounded.before[0] - 1e-4};
  const RoundingResponse response(expected, rounded, /*has_backward=*/true);
  EXPECT_EQ(response.own(1), 0);
  Observed run = expected;
  run.written = {expected.before[0] - 1.01e-4};
  EXPECT_FALSE(response.explains(run, 1));
}

TEST(Rounding, OfCopiesLeavesWhatTheProgramFound) {
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

TEST(Rounding, KeepsTheLargestNumbersFinite) {
  at::Tensor numbers = at::full({64}, -std::numeric_limits<float>::max());
  round_differently(numbers.storage());
  EXPECT_TRUE(at::isfinite(numbers).all().item<bool>());
}

}  // namespace
}  // namespace nimble
