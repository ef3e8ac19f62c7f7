#include "nimble/base/byte_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace nimble {
namespace {

constexpr int64_t kMemory = 96;

// The definition, byte by byte.
std::set<int64_t> enumerate(const ByteSet& set) {
  std::set<int64_t> bytes;
  for (int64_t byte = set.begin; byte < set.end; ++byte)
    if (set.period == 0 || (byte - set.begin) % set.period < set.width) bytes.insert(byte);
  return bytes;
}

bool have_common(const std::set<int64_t>& a, const std::set<int64_t>& b) {
  for (int64_t byte : a)
    if (b.contains(byte)) return true;
  return false;
}

bool includes(const std::set<int64_t>& a, const std::set<int64_t>& b) {
  for (int64_t byte : b)
    if (!a.contains(byte)) return false;
  return true;
}

// Empty ones too, and ones that end within a gap or a stretch.
ByteSet random_set(std::mt19937& rng) {
  ByteSet set;
  set.begin = static_cast<int64_t>(rng() % kMemory);
  set.end = set.begin + static_cast<int64_t>(rng() % (kMemory - set.begin + 1));
  if (rng() % 3 == 0) return set;
  set.period = 1 + static_cast<int64_t>(rng() % 12);
  set.width = 1 + static_cast<int64_t>(rng() % set.period);
  return set;
}

TEST(ByteSet, OverlapIsNeverMissedAndExactUnlessPeriodsDiffer) {
  std::mt19937 rng(1);
  size_t common = 0, apart = 0, apart_with_period = 0, too_careful = 0;
  for (int round = 0; round < 60000; ++round) {
    const ByteSet a = random_set(rng);
    const ByteSet b = random_set(rng);
    const bool expected = have_common(enumerate(a), enumerate(b));
    const bool found = a.may_overlap(b);
    ASSERT_EQ(found, b.may_overlap(a));
    const bool inexact = a.period != 0 && b.period != 0 && a.period != b.period;
    if (expected || !inexact) {
      ASSERT_EQ(found, expected) << a.begin << " " << a.end << " " << a.period << " " << a.width
                                 << " | " << b.begin << " " << b.end << " " << b.period << " "
                                 << b.width;
    }
    ++(expected ? common : apart);
    apart_with_period += !expected && a.period == b.period && a.period != 0 &&
                         std::max(a.begin, b.begin) < std::min(a.end, b.end);
    too_careful += found && !expected;
  }
  for (size_t count : {common, apart, apart_with_period, too_careful}) EXPECT_GT(count, 100u);
}

TEST(ByteSet, CoversOnlyWhatItHolds) {
  std::mt19937 rng(2);
  size_t covered = 0, periodic_covered = 0, missed = 0;
  for (int round = 0; round < 60000; ++round) {
    const ByteSet a = random_set(rng);
    const ByteSet b = random_set(rng);
    const bool expected = includes(enumerate(a), enumerate(b));
    const bool found = a.covers(b);
    if (found) {
      ASSERT_TRUE(expected);
    }
    if (a.period == 0 && b.period == 0) {
      ASSERT_EQ(found, expected);
    }
    covered += found;
    periodic_covered += found && a.period != 0 && a.period == b.period && !b.empty();
    missed += expected && !found;
  }
  for (size_t count : {covered, periodic_covered, missed}) EXPECT_GT(count, 100u);
}

TEST(ByteSet, NeighbouringChannelsOfEveryPixelAreApart) {
  const ByteSet low{0, 1000 - 64, 100, 36};
  const ByteSet high{36, 1000, 100, 64};
  EXPECT_FALSE(low.may_overlap(high));
  EXPECT_TRUE(low.may_overlap({35, 1000, 100, 64}));
  EXPECT_FALSE(low.may_overlap({36, 100, 0, 0})) << "a stretch inside a gap";
  EXPECT_TRUE(low.may_overlap({36, 101, 0, 0}));
  EXPECT_FALSE(low.may_overlap({36, 1000, 200, 64})) << "of every second pixel";
  EXPECT_TRUE(low.covers({200, 436, 100, 36}));
  EXPECT_TRUE(low.covers({210, 220, 0, 0}));
  EXPECT_FALSE(low.covers({200, 437, 100, 37}));
}

const DType kHalf{.code = 5, .bytes = 2, .name = "float16"};

// Every byte of every element.
std::set<int64_t> enumerate(const TensorDesc& desc) {
  std::set<int64_t> bytes;
  const int64_t numel = desc.numel();
  for (int64_t i = 0; i < numel; ++i) {
    int64_t rest = i;
    int64_t element = desc.offset;
    for (size_t d = desc.sizes.size(); d-- > 0;) {
      element += rest % desc.sizes[d] * desc.strides[d];
      rest /= desc.sizes[d];
    }
    for (int64_t b = 0; b < desc.dtype.bytes; ++b) bytes.insert(element * desc.dtype.bytes + b);
  }
  return bytes;
}

TEST(BytesOf, HoldsEveryElementFromTheFirstToTheLast) {
  std::mt19937 rng(3);
  size_t exact = 0, periodic = 0;
  for (int round = 0; round < 20000; ++round) {
    TensorDesc desc{.dtype = kHalf, .sizes = {}, .strides = {}};
    desc.offset = static_cast<int64_t>(rng() % 10);
    const size_t rank = rng() % 4;
    for (size_t d = 0; d < rank; ++d) {
      desc.sizes.push_back(static_cast<int64_t>(rng() % 4));
      desc.strides.push_back(static_cast<int64_t>(rng() % 20));
    }
    const ByteSet set = bytes_of(desc);
    const std::set<int64_t> expected = enumerate(desc);
    const std::set<int64_t> found = enumerate(set);
    ASSERT_TRUE(includes(found, expected)) << desc.to_string();
    ASSERT_EQ(set.empty(), expected.empty());
    if (expected.empty()) continue;
    ASSERT_EQ(set.begin, *expected.begin());
    ASSERT_EQ(set.end, *expected.rbegin() + 1);
    exact += found == expected;
    periodic += set.period != 0;
  }
  EXPECT_GT(exact, 4000u);
  EXPECT_GT(periodic, 500u);
}

TEST(BytesOf, ASliceOfChannelsIsExact) {
  // Channels 3 to 8 of 12, of rows 1 to 4 of an image of 6 x 5 pixels.
  const TensorDesc desc{
      .dtype = kHalf, .sizes = {1, 5, 3, 5}, .strides = {360, 1, 60, 12}, .offset = 63};
  const ByteSet set = bytes_of(desc);
  EXPECT_EQ(set, (ByteSet{126, 126 + 14 * 24 + 10, 24, 10}));
  EXPECT_EQ(enumerate(set), enumerate(desc));
}

TEST(BytesOf, DenseTensorsAreStretchesInAnyOrderOfDimensions) {
  const TensorDesc desc{.dtype = kHalf, .sizes = {2, 3, 4}, .strides = {3, 1, 6}, .offset = 5};
  EXPECT_EQ(bytes_of(desc), (ByteSet{10, 58, 0, 0}));
}

}  // namespace
}  // namespace nimble
