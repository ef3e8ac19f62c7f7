#include "nimble/base/tensor_desc.h"

#include <gtest/gtest.h>

namespace nimble {
namespace {

TensorDesc floats(std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset = 0) {
  TensorDesc desc;
  desc.dtype = {6, 4, "Float"};
  desc.sizes = std::move(sizes);
  desc.strides = std::move(strides);
  desc.offset = offset;
  return desc;
}

TEST(TensorDesc, SpansFromItsFirstToBehindItsLastElement) {
  EXPECT_EQ(floats({2, 3}, {3, 1}).end_byte(), 24);
  EXPECT_EQ(floats({2, 3}, {10, 1}, 5).begin_byte(), 20);
  EXPECT_EQ(floats({2, 3}, {10, 1}, 5).end_byte(), 20 + (10 + 2 + 1) * 4);
}

TEST(TensorDesc, WithoutElementsSpansNothing) {
  const TensorDesc none = floats({4, 0}, {1, 1}, 7);
  EXPECT_EQ(none.numel(), 0);
  EXPECT_EQ(none.begin_byte(), none.end_byte());
}

TEST(TensorDesc, ZeroDimensionsAreOneElement) {
  EXPECT_EQ(floats({}, {}).numel(), 1);
  EXPECT_EQ(floats({}, {}).end_byte(), 4);
  EXPECT_EQ(floats({}, {}).to_string(), "Float[]");
}

TEST(TensorDesc, IsDenseInAnyOrderOfDimensionsButNotWithGapsOrOverlap) {
  EXPECT_TRUE(floats({2, 3}, {3, 1}).is_dense());
  EXPECT_TRUE(floats({2, 3}, {1, 2}).is_dense());
  EXPECT_TRUE(floats({2, 1, 3}, {3, 99, 1}).is_dense());
  EXPECT_FALSE(floats({2, 3}, {4, 1}).is_dense());
  EXPECT_FALSE(floats({2, 3}, {0, 1}).is_dense());
}

TEST(TensorDesc, OverlapsItselfWhenExpandedButNotWhenSliced) {
  EXPECT_TRUE(floats({2, 3}, {0, 1}).may_overlap_itself());
  EXPECT_TRUE(floats({3, 2}, {1, 1}).may_overlap_itself());
  EXPECT_FALSE(floats({2, 3}, {3, 1}).may_overlap_itself());
  EXPECT_FALSE(floats({2, 3}, {7, 2}).may_overlap_itself());
  EXPECT_FALSE(floats({0, 3}, {0, 1}).may_overlap_itself());
  EXPECT_FALSE(floats({1, 3}, {0, 1}).may_overlap_itself());
}

TEST(TensorDesc, PrintsLikeAType) {
  EXPECT_EQ(floats({1, 3, 224}, {1, 1, 1}).to_string(), "Float[1,3,224]");
}

}  // namespace
}  // namespace nimble
