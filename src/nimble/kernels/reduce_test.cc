#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"

// NaN and rounding, which the generic test does not see.
namespace nimble {
namespace {

struct Case {
  TensorDesc input;
  TensorDesc output;
  std::vector<int64_t> dims;
};

// Outputs side by side, elements side by side, neither.
std::vector<Case> all_forms(int64_t reduced) {
  TensorDesc apart = cases::dense({reduced, 3});
  apart.strides = {6, 2};
  return {{cases::dense({reduced, 150}), cases::dense({1, 150}), {0}},
          {cases::dense({3, reduced}), cases::dense({3, 1}), {1}},
          {apart, cases::dense({1, 3}), {0}}};
}

template <class Test>
void on_every_target(const Test& test) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    test();
    hwy::SetSupportedTargetsForTest(0);
  }
}

std::vector<float> reduce_all(Reduce::Kind kind, const Case& test, std::vector<float>& input) {
  std::vector<float> output(static_cast<size_t>(test.output.numel()));
  const auto kernels =
      reduce_candidates({kind, test.dims}, std::vector<TensorDesc>{test.input, test.output});
  EXPECT_EQ(kernels.size(), 1U);
  void* data[] = {input.data(), output.data()};
  for (const KernelPtr& kernel : kernels)
    kernel->run({data, nullptr, nullptr, kernel->work().whole()});
  return output;
}

TEST(Reduce, NaNAnywhereIsTheResult) {
  on_every_target([] {
    for (const Case& test : all_forms(41)) {
      std::vector<float> input(static_cast<size_t>(test.input.end_byte()) / sizeof(float), 1.0f);
      const auto stride =
          static_cast<size_t>(test.input.strides[static_cast<size_t>(test.dims[0])]);
      for (Reduce::Kind kind :
           {Reduce::Kind::kSum, Reduce::Kind::kMean, Reduce::Kind::kMax, Reduce::Kind::kMin}) {
        for (size_t at = 0; at < 41; ++at) {
          input[at * stride] = std::numeric_limits<float>::quiet_NaN();
          const std::vector<float> output = reduce_all(kind, test, input);
          EXPECT_TRUE(std::isnan(output[0])) << describe(Reduce{kind, {}}) << " at " << at;
          EXPECT_FALSE(std::isnan(output[1]));
          input[at * stride] = 1.0f;
        }
      }
    }
  });
}

TEST(Reduce, LongSumsKeepTheirDigits) {
  on_every_target([] {
    for (const Case& test : all_forms(20000)) {
      std::vector<float> input(static_cast<size_t>(test.input.end_byte()) / sizeof(float), 0.1f);
      const std::vector<float> output = reduce_all(Reduce::Kind::kMean, test, input);
      for (float mean : output) EXPECT_NEAR(mean, 0.1f, 3e-8f);
    }
  });
}

}  // namespace
}  // namespace nimble
