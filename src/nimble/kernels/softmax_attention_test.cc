#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>

#include "nimble/base/error.h"
#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/kernel.h"

// What random numbers do not show: infinities, NaN, masks that hide everything, wrong indices.
namespace nimble {
namespace {

using cases::dense;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Runs the kernel for every instruction set, and the plain loops.
template <class Check>
void compute_everywhere(const OpAttributes& attributes, const std::vector<TensorDesc>& operands,
                        std::vector<std::vector<float>> inputs, const Check& check) {
  std::vector<void*> data;
  for (std::vector<float>& input : inputs) data.push_back(input.data());
  std::vector<float> output(static_cast<size_t>(operands.back().numel()));
  data.push_back(output.data());
  compute_reference(attributes, operands, data.data());
  check(output);
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    const auto kernels = kernel_candidates(attributes, operands);
    EXPECT_FALSE(kernels.empty());
    for (const KernelPtr& kernel : kernels) {
      std::fill(output.begin(), output.end(), 77.0f);
      const Part whole = kernel->work().whole();
      std::vector<std::byte> memory(kernel->scratch_bytes(whole) + 64);
      const auto address = reinterpret_cast<uintptr_t>(memory.data());
      kernel->run({data.data(), nullptr, memory.data() + (64 - address % 64) % 64, whole});
      check(output);
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

// The rows: all hidden, an infinity, a NaN, some hidden, far apart.
const std::vector<float> kRows = {-kInfinity, -kInfinity, -kInfinity,  //
                                  1,          kInfinity,  0,           //
                                  1,          kNan,       0,           //
                                  -kInfinity, 2,          2,           //
                                  -200,       0,          -1e30f};

TEST(Softmax, ASafeOneIsZeroWhereAllIsHidden) {
  compute_everywhere(Softmax{.dim = 1, .safe = true}, {dense({5, 3}), dense({5, 3})}, {kRows},
                     [](const std::vector<float>& y) {
                       for (size_t i : {0, 1, 2}) EXPECT_EQ(y[i], 0);
                       for (size_t i : {3, 6, 7, 8}) EXPECT_TRUE(std::isnan(y[i])) << i;
                       EXPECT_EQ(y[9], 0);
                       EXPECT_FLOAT_EQ(y[10], 0.5f);
                     });
}

TEST(Softmax, InfinitiesAndNanAreAsInTheFramework) {
  for (bool across : {false, true}) {  // the reductions lie side by side
    TensorDesc desc = dense({5, 3});
    std::vector<float> input = kRows;
    if (across) {
      desc.strides = {1, 5};
      for (size_t r = 0; r < 5; ++r)
        for (size_t c = 0; c < 3; ++c) input[c * 5 + r] = kRows[r * 3 + c];
    }
    const auto at = [&](size_t r, size_t c) { return across ? c * 5 + r : r * 3 + c; };
    compute_everywhere(Softmax{.dim = 1}, {desc, desc}, {input}, [&](const auto& y) {
      for (size_t r = 0; r < 3; ++r)
        for (size_t c = 0; c < 3; ++c) EXPECT_TRUE(std::isnan(y[at(r, c)])) << r << " " << c;
      EXPECT_EQ(y[at(3, 0)], 0);
      EXPECT_FLOAT_EQ(y[at(3, 1)], 0.5f);
      EXPECT_EQ(y[at(4, 0)], 0);
      EXPECT_EQ(y[at(4, 1)], 1);
      EXPECT_EQ(y[at(4, 2)], 0);
    });
    compute_everywhere(Softmax{.dim = 1, .log = true}, {desc, desc}, {input}, [&](const auto& y) {
      for (size_t r = 0; r < 3; ++r)
        for (size_t c = 0; c < 3; ++c) EXPECT_TRUE(std::isnan(y[at(r, c)])) << r << " " << c;
      EXPECT_EQ(y[at(3, 0)], -kInfinity);
      EXPECT_FLOAT_EQ(y[at(3, 1)], -std::log(2.0f));
      EXPECT_EQ(y[at(4, 0)], -200);
      EXPECT_EQ(y[at(4, 2)], -1e30f);
    });
  }
}

TEST(Softmax, PartsHaveWholeReductions) {
  const TensorDesc planes = dense({2, 5, 3, 4});
  const TensorDesc pixels = cases::image(2, 5, 3, 4);
  const auto work = [](int64_t dim, const TensorDesc& desc) {
    return kernel_candidates(Softmax{.dim = dim}, std::vector{desc, desc}).front()->work();
  };
  EXPECT_EQ(work(1, planes).rows, 10);
  EXPECT_EQ(work(1, planes).row_grain, 5);
  EXPECT_EQ(work(3, planes).row_grain, 1);
  EXPECT_EQ(work(0, planes).row_grain, 0);
  EXPECT_EQ(work(1, pixels).rows, 6);
  EXPECT_EQ(work(1, pixels).row_grain, 1);
  EXPECT_EQ(work(2, pixels).row_grain, 3);
}

TEST(Attention, AQueryThatSeesNoKeyGivesZero) {
  const std::vector<TensorDesc> operands = {dense({1, 1, 3, 2}), dense({1, 1, 4, 2}),
                                            dense({1, 1, 4, 1}), dense({1, 1, 3, 4}),
                                            dense({1, 1, 3, 1})};
  const float h = -kInfinity;
  const std::vector<float> mask = {h, h, h,    h,  //
                                   0, h, h,    0,  //
                                   0, 0, kNan, 0};
  compute_everywhere(Attention{.mask = true}, operands,
                     {std::vector<float>(6, 1), std::vector<float>(8, 1), {1, 2, 3, 5}, mask},
                     [&](const auto& y) {
                       EXPECT_EQ(y[0], 0);
                       EXPECT_FLOAT_EQ(y[1], 3);
                       EXPECT_TRUE(std::isnan(y[2]));
                     });
}

TEST(LayerNorm, IsAccurateFarFromZero) {
  const int64_t size = 1000;
  std::vector<float> input;
  for (int64_t i = 0; i < size; ++i) input.push_back(4096.0f + static_cast<float>(i % 2));
  compute_everywhere(LayerNorm{}, {dense({1, size}), dense({1, size})}, {input},
                     [&](const auto& y) {
                       EXPECT_NEAR(y[0], -1, 1e-3);
                       EXPECT_NEAR(y[1], 1, 1e-3);
                     });
  compute_everywhere(GroupNorm{}, {dense({1, 2, size / 2}), dense({1, 2, size / 2})}, {input},
                     [&](const auto& y) {
                       EXPECT_NEAR(y[0], -1, 1e-3);
                       EXPECT_NEAR(y[1], 1, 1e-3);
                     });
}

TEST(Embedding, AnIndexOutOfRangeIsTheUsersError) {
  const std::vector<TensorDesc> operands = {dense({2}, cases::int64()), dense({3, 4}),
                                            dense({2, 4})};
  const auto kernel = kernel_candidates(Embedding{}, operands).front();
  std::vector<float> weight(12);
  std::vector<float> output(8);
  for (int64_t index : {int64_t{-1}, int64_t{3}}) {
    std::vector<int64_t> indices = {2, index};
    void* const data[] = {indices.data(), weight.data(), output.data()};
    try {
      kernel->run({data, nullptr, nullptr, kernel->work().whole()});
      FAIL() << "no error for " << index;
    } catch (const std::out_of_range& error) {
      EXPECT_EQ(std::string(error.what()),
                message("index out of range in self: got ", index, ", the table has 3 rows"));
    }
  }
}

}  // namespace
}  // namespace nimble
