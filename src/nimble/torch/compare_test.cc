#include "nimble/torch/compare.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <bit>
#include <cmath>
#include <limits>

namespace nimble {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kAllOnes = std::bit_cast<float>(0xffffffffu);  // a NaN, as memory full of ones is

at::Tensor with(float number) {
  at::Tensor tensor = at::ones({100});
  tensor.mutable_data_ptr<float>()[37] = number;
  return tensor;
}

TEST(Compare, NoNanAgreesWithANumber) {
  for (float nan : {std::nanf(""), kAllOnes, -std::nanf("")}) {
    EXPECT_TRUE(std::isnan(distance(with(nan), with(1)))) << std::bit_cast<uint32_t>(nan);
    EXPECT_TRUE(std::isnan(distance(with(1), with(nan))));
    EXPECT_FALSE(agree(with(nan), with(1), 1e-3));
    EXPECT_FALSE(agree(with(1), with(nan), 1e-3));
    EXPECT_TRUE(agree(with(nan), with(kAllOnes), 1e-3));
    EXPECT_FALSE(agree_in_change(with(0), with(nan), with(1), 1e-3));
    EXPECT_EQ(largest_finite(with(nan)), 1);
  }
}

TEST(Compare, InfinityAgreesWithItselfOnly) {
  EXPECT_TRUE(agree(with(kInfinity), with(kInfinity), 1e-3));
  EXPECT_FALSE(agree(with(kInfinity), with(-kInfinity), 1e-3));
  EXPECT_FALSE(agree(with(kInfinity), with(1), 1e-3));
  EXPECT_EQ(largest_finite(with(kInfinity)), 1);
}

TEST(Compare, TheLargestNumberCounts) {
  EXPECT_EQ(distance(with(-5), with(2)), 7);
  EXPECT_TRUE(agree(with(1000), with(1000.5), 1e-3));
  EXPECT_FALSE(agree(with(1000), with(1003), 1e-3));
  EXPECT_EQ(largest_change(with(3), with(-1)), 4);
  EXPECT_EQ(distance_of_changes({with(0), with(5)}, {with(1), with(4)}), 2);
}

}  // namespace
}  // namespace nimble
