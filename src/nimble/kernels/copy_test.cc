#include <gtest/gtest.h>

#include <numeric>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"

// The generic test has elements of four and eight bytes only.
namespace nimble {
namespace {

class CopyOfSize : public ::testing::TestWithParam<int> {};

TEST_P(CopyOfSize, AgreesWithThePlainLoops) {
  const auto bytes = static_cast<uint8_t>(GetParam());
  const DType dtype{1, bytes, "opaque"};
  const TensorDesc first = cases::dense({2, 5, 9, 7}, dtype);
  TensorDesc last = cases::image(2, 5, 9, 7, 6);
  last.dtype = dtype;
  TensorDesc expanded = first;
  expanded.strides = {0, 1, 5, 0};
  const std::pair<TensorDesc, TensorDesc> pairs[] = {{first, last},    {last, first},
                                                     {first, first},   {last, last},
                                                     {expanded, last}, {expanded, first}};
  for (const auto& [from, to] : pairs) {
    std::vector<uint8_t> input(static_cast<size_t>(from.end_byte()));
    std::iota(input.begin(), input.end(), uint8_t{0});
    std::vector<uint8_t> wanted(static_cast<size_t>(to.end_byte()), 0x55);
    std::vector<uint8_t> actual = wanted;
    const std::vector<TensorDesc> operands = {from, to};
    std::vector<void*> data = {input.data(), wanted.data()};
    copy_reference({}, operands, data.data());
    const auto kernels = copy_candidates({}, operands);
    ASSERT_EQ(kernels.size(), 1U);
    data[1] = actual.data();
    kernels[0]->run({data.data(), nullptr, nullptr, kernels[0]->work().whole()});
    EXPECT_EQ(actual, wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, CopyOfSize, ::testing::Values(1, 2, 4, 8, 16));

}  // namespace
}  // namespace nimble
