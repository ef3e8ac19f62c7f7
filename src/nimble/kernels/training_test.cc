#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/kernel.h"

// Ops of training put together as an importer does it, against what PyTorch 2.15 gave on a CPU; and
// what the generic test does not see of them.
namespace nimble {
namespace {

using cases::dense;
using cases::image;
using Floats = std::vector<float>;

// As the numbers were made that PyTorch was given; images in the order of their memory.
Floats pattern(size_t count, size_t factor) {
  Floats numbers(count);
  for (size_t i = 0; i < count; ++i)
    numbers[i] = static_cast<float>(static_cast<int>(i * factor % 41) - 20) / 16;
  return numbers;
}

void run(const OpAttributes& attributes, const std::vector<TensorDesc>& operands,
         const std::vector<void*>& data) {
  const auto kernels = kernel_candidates(attributes, operands);
  ASSERT_FALSE(kernels.empty()) << describe(attributes);
  const Kernel& kernel = *kernels.front();
  const Part whole = kernel.work().whole();
  auto scratch = hwy::AllocateAligned<std::byte>(kernel.scratch_bytes(whole) + 64);
  kernel.run({data.data(), nullptr, scratch.get(), whole});
}

void expect_close(const Floats& actual, const Floats& expected, float tolerance = 3e-6f) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << "element " << i;
}

ChainStep step(ChainOp op, int x, int y = -1, int z = -1, float value = 0) {
  return {.op = op, .x = x, .y = y, .z = z, .value = value, .activation = {}};
}

// A vector of channels seen as an image, or as rows.
TensorDesc like(const TensorDesc& other, size_t channels) {
  TensorDesc vector = other;
  std::fill(vector.strides.begin(), vector.strides.end(), 0);
  vector.strides[channels] = 1;
  return vector;
}

class TrainingTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(TrainingTest, BatchNormForwardAndBackward) {
  const TensorDesc x_desc = image(2, 3, 2, 3);
  const TensorDesc by_channel = like(x_desc, 1);
  const TensorDesc vector = dense({3});
  for (int64_t blocks : {1, 3}) {
    SCOPED_TRACE(blocks);
    Floats x = pattern(36, 37);
    Floats gradient = pattern(36, 17);
    Floats weight = {0.5f, 1.5f, -1};
    Floats bias = {0.1f, 0.2f, 0.3f};
    Floats running_mean = {1, 2, 3};
    Floats running_variance = {0.5f, 1, 2};
    const TensorDesc by_block = dense({blocks, 3});
    Floats means(by_block.numel()), squares(by_block.numel()), mean(3), inverse(3);
    run(ChannelMoments{}, {x_desc, by_block, by_block}, {x.data(), means.data(), squares.data()});
    run(
        BatchStatistics{
            .rows = 4, .row_elements = 3, .epsilon = 1e-3, .momentum = 0.1, .running = true},
        {by_block, by_block, vector, vector, vector, vector},
        {means.data(), squares.data(), mean.data(), inverse.data(), running_mean.data(),
         running_variance.data()});
    expect_close(mean, {-0.03645833f, 0.140625f, 0.1041667f});
    expect_close(inverse, {1.277621f, 1.3267f, 1.410664f});
    expect_close(running_mean, {0.8963541f, 1.814062f, 2.710417f});
    expect_close(running_variance, {0.5167229f, 0.9618697f, 1.854711f});

    // x * (weight / deviation) + (bias - mean * weight / deviation)
    Floats y(36);
    run(Chain{5,
              {step(ChainOp::kMul, 2, 3), step(ChainOp::kMul, 1, 5), step(ChainOp::kSub, 4, 6),
               step(ChainOp::kMul, 0, 5), step(ChainOp::kAdd, 8, 7)},
              {9}},
        {x_desc, by_channel, by_channel, by_channel, by_channel, x_desc},
        {x.data(), mean.data(), inverse.data(), weight.data(), bias.data(), y.data()});
    expect_close(y,
                 {-0.6752234f,  2.034578f,  -0.6992205f,  0.482621f,    0.5420399f,  0.3587777f,
                  0.003512979f, -0.950498f, 1.416776f,    -0.475595f,   -2.443036f,  -1.140053f,
                  0.6822493f,   1.163931f,  -0.08205491f, 0.2031413f,   -0.3286072f, 0.9759433f,
                  -0.2759667f,  -1.821145f, 2.033942f,    0.8818776f,   1.785822f,   -0.5228875f,
                  0.4027696f,   0.2932836f, 0.5351107f,   -0.07633835f, -1.199254f,  1.593109f,
                  -0.5554463f,  2.407712f,  -0.9637201f,  0.6023979f,   0.9151744f,  0.09427813f});

    Floats sums(by_block.numel()), products(by_block.numel()), sum(3), product(3);
    const Chain normalised{
        4, {step(ChainOp::kSub, 1, 2), step(ChainOp::kMul, 4, 3), step(ChainOp::kMul, 0, 5)}, {}};
    run(ChainSums{.chain = normalised, .sums = {0, 6}},
        {x_desc, x_desc, by_channel, by_channel, by_block, by_block},
        {gradient.data(), x.data(), mean.data(), inverse.data(), sums.data(), products.data()});
    const Reduce add{.kind = Reduce::Kind::kSum, .dims = {0}};
    run(add, {by_block, dense({1, 3})}, {sums.data(), sum.data()});
    run(add, {by_block, dense({1, 3})}, {products.data(), product.data()});
    expect_close(product, {4.630545f, -1.442009f, 4.397305f});
    expect_close(sum, {0.625f, 0.5625f, -2.0625f});

    // (dy - sum / n - (x - mean) / deviation * product / n) * (weight / deviation)
    const float share = 1.0f / 12;
    const Chain input_gradient{
        7,
        {step(ChainOp::kSub, 1, 2), step(ChainOp::kMul, 7, 3),
         step(ChainOp::kMulScalar, 5, -1, -1, share), step(ChainOp::kMulScalar, 6, -1, -1, share),
         step(ChainOp::kSub, 0, 9), step(ChainOp::kMul, 8, 10), step(ChainOp::kSub, 11, 12),
         step(ChainOp::kMul, 3, 4), step(ChainOp::kMul, 13, 14)},
        {15}};
    run(input_gradient,
        {x_desc, x_desc, by_channel, by_channel, by_channel, by_channel, by_channel, x_desc},
        {gradient.data(), x.data(), mean.data(), inverse.data(), weight.data(), sum.data(),
         product.data(), gradient.data()});  // in place
    expect_close(gradient,
                 {-0.4495943f, -0.1739384f, -0.9602653f, -0.6211628f,  0.8318937f, 1.225989f,
                  0.01429738f, 1.837726f,   -0.2025837f, 0.6497576f,   -2.255947f, 0.2374445f,
                  0.478189f,   -0.4371204f, -1.191128f,  -0.5233031f,  0.5687115f, 0.9951262f,
                  0.1121571f,  1.574543f,   -0.4334466f, -0.05941148f, -1.706135f, 0.006581614f,
                  0.5760487f,  -0.7003025f, -1.421991f,  -0.4254433f,  0.3055294f, 0.7642633f,
                  0.2100168f,  2.124356f,   1.204291f,   0.03844827f,  -1.969317f, -0.2242813f});
  }
}

TEST_P(TrainingTest, LayerNormForwardAndBackward) {
  const TensorDesc rows = dense({3, 4});
  const TensorDesc by_row = dense({3, 1});
  Floats x = pattern(12, 37);
  Floats gradient = pattern(12, 17);
  Floats weight = {0.5f, 1.5f, -1, 2};
  Floats y(12), mean(3), inverse(3), input_gradient(12), weight_gradient(4), bias_gradient(4);
  run(LayerNorm{.epsilon = 1e-3, .weight = true, .statistics = true},
      {rows, dense({4}), rows, by_row, by_row},
      {x.data(), weight.data(), y.data(), mean.data(), inverse.data()});
  expect_close(mean, {0.296875f, -0.0625f, -0.421875f});
  expect_close(inverse, {1.097737f, 3.555029f, 1.097737f});
  expect_close(y, {-0.8490309f, 1.260682f, -0.5660206f, 0.5831727f, 0.6665679f, 0.6665679f,
                   0.4443786f, -2.666272f, -0.1457932f, -0.8490309f, 0.8404549f, 3.396124f});
  run(LayerNormGradient{.weight = true}, {rows, rows, by_row, by_row, dense({4}), rows},
      {gradient.data(), x.data(), mean.data(), inverse.data(), weight.data(),
       input_gradient.data()});
  expect_close(input_gradient,
               {0.1295574f, 0.5311761f, -0.1232291f, -0.5375044f, 3.961235f, -5.049016f, -1.949948f,
                3.037728f, -0.8256732f, 0.4009961f, 0.2897986f, 0.1348784f},
               1e-5f);
  TensorDesc number = rows;
  number.strides = {1, 0};
  run(ChainSums{.chain = {4,
                          {step(ChainOp::kSub, 1, 2), step(ChainOp::kMul, 4, 3),
                           step(ChainOp::kMul, 0, 5)},
                          {}},
                .sums = {6, 0}},
      {rows, rows, number, number, dense({1, 4}), dense({1, 4})},
      {gradient.data(), x.data(), mean.data(), inverse.data(), weight_gradient.data(),
       bias_gradient.data()});
  expect_close(weight_gradient, {2.833393f, -0.9835004f, 1.230666f, -1.280312f});
  expect_close(bias_gradient, {-1.25f, -0.625f, 0, 0.625f});
}

// Some more channels than a vector has, all alike.
constexpr int64_t kAlike = 19;
Floats repeated(const Floats& plane) {
  Floats all;
  for (float value : plane) all.insert(all.end(), kAlike, value);
  return all;
}

TEST_P(TrainingTest, PoolsForwardAndBackward) {
  Floats plane = pattern(25, 7);
  plane[6] = plane[12] = 1.25f;  // equal maxima
  Floats x = repeated(plane);
  Floats gradient = repeated(pattern(9, 17));
  const TensorDesc in = image(1, kAlike, 5, 5);
  const TensorDesc out = image(1, kAlike, 3, 3);
  TensorDesc out_indices = out;
  out_indices.dtype = cases::int64();
  Pool pool{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .far_padding = {1, 1}};
  Floats y(out.numel()), back(in.numel());
  std::vector<int64_t> indices(out.numel());
  run(MaxPoolIndices{pool}, {in, out, out_indices}, {x.data(), y.data(), indices.data()});
  expect_close(y, repeated({1.25f, 1.25f, 0.5f, 1.25f, 1.25f, 0.125f, 0.625f, 1.125f, 1.125f}), 0);
  const std::vector<int64_t> wanted = {6, 6, 4, 6, 6, 9, 16, 23, 23};
  for (size_t i = 0; i < indices.size(); ++i) EXPECT_EQ(indices[i], wanted[i / kAlike]);
  run(PoolGradient{pool}, {out, out_indices, in}, {gradient.data(), indices.data(), back.data()});
  expect_close(back, repeated({0, 0, 0, 0, 0.875f, 0, -1.625f, 0, 0, -1.0625f, 0,      0, 0,
                               0, 0, 0, 0, 0,      0, 0,       0, 0, 0,        0.625f, 0}));

  pool.kind = Pool::Kind::kAverage;
  pool.count_include_pad = false;
  const Floats without_padding = {-0.3125f,    -0.34375f,    -0.03125f,   0.1875f,      0.21875f,
                                  -0.4166667f, -0.3993056f,  0.01736111f, 0.05902778f,  0.04166667f,
                                  -0.1041667f, -0.05555555f, 0.04861111f, -0.1284722f,  -0.1770833f,
                                  -0.1041667f, 0.1215278f,   0.2256944f,  -0.06076388f, -0.2864583f,
                                  0,           0.1770833f,   0.1770833f,  0.06770833f,  -0.109375f};
  run(PoolGradient{pool}, {out, in}, {gradient.data(), back.data()});
  expect_close(back, repeated(without_padding));
  run(AdaptivePoolGradient{}, {out, in}, {gradient.data(), back.data()});
  expect_close(back, repeated(without_padding));  // the windows are the same
  pool.count_include_pad = true;
  run(PoolGradient{pool}, {out, in}, {gradient.data(), back.data()});
  expect_close(back, repeated({-0.1388889f,
                               -0.1597222f,
                               -0.02083333f,
                               0.07638889f,
                               0.09722222f,
                               -0.2083333f,
                               -0.1805556f,
                               0.02777778f,
                               0.006944448f,
                               -0.02083333f,
                               -0.06944445f,
                               -0.02083334f,
                               0.04861111f,
                               -0.06944444f,
                               -0.1180556f,
                               -0.06944445f,
                               0.09722222f,
                               0.1666667f,
                               0,
                               -0.1666667f,
                               0,
                               0.1180556f,
                               0.1180556f,
                               0.06944444f,
                               -0.04861111f}));
}

TEST_P(TrainingTest, AMaximumIsTheLastNanAndOfLowestNumbersTheFirst) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float lowest = -std::numeric_limits<float>::infinity();
  Floats x = repeated({1, nan, 3, nan, lowest, lowest, lowest, lowest, lowest});
  TensorDesc out = image(1, kAlike, 2, 2);
  Floats y(out.numel());
  std::vector<int64_t> indices(out.numel());
  const TensorDesc y_desc = out;
  out.dtype = cases::int64();
  run(MaxPoolIndices{Pool{.kernel = {2, 2}}}, {image(1, kAlike, 3, 3), y_desc, out},
      {x.data(), y.data(), indices.data()});
  const int64_t wanted[] = {3, 1, 3, 4};
  for (size_t i = 0; i < indices.size(); ++i) {
    EXPECT_EQ(indices[i], wanted[i / kAlike]);
    EXPECT_EQ(std::isnan(y[i]), i / kAlike < 3);
  }
}

// Where squares of floats would have lost the variance.
TEST_P(TrainingTest, MomentsOfNumbersFarFromZero) {
  const TensorDesc x_desc = image(2, 20, 9, 7);
  for (float offset : {0.0f, 1e3f, -3e4f}) {
    Floats x = pattern(x_desc.numel(), 37);
    for (float& value : x) value += offset;
    Floats mean(20), squares(20), wanted_mean(20), wanted_squares(20);
    const std::vector<TensorDesc> operands = {x_desc, dense({1, 20}), dense({1, 20})};
    run(ChannelMoments{}, operands, {x.data(), mean.data(), squares.data()});
    std::vector<void*> data = {x.data(), wanted_mean.data(), wanted_squares.data()};
    ASSERT_TRUE(compute_reference(ChannelMoments{}, operands, data.data()));
    expect_close(mean, wanted_mean, 1e-7f);
    expect_close(squares, wanted_squares, 1e-6f);
  }
}

// Many equal numbers: a sum of floats would stand still.
TEST_P(TrainingTest, SumsOfManyNumbers) {
  const int64_t rows = 1 << 19;
  const TensorDesc x_desc = dense({rows, 3});
  Floats x(x_desc.numel(), 0.1f);
  Floats sum(3);
  run(ChainSums{.chain = {1, {}, {}}, .sums = {0}}, {x_desc, dense({1, 3})},
      {x.data(), sum.data()});
  for (float value : sum) EXPECT_NEAR(value, 0.1f * static_cast<float>(rows), 0.02f);
}

// What is summed up is what was there before the output was written over it.
TEST_P(TrainingTest, ChannelSumsWorkInPlace) {
  for (const TensorDesc& desc : {image(2, 24, 5, 7), image(2, 24, 5, 7, 40), image(1, 1100, 2, 3),
                                 dense({50, 33}), dense({2, 5, 7, 6})}) {
    const int64_t channels = desc.sizes[1];
    const TensorDesc sums = dense({2, channels});
    const size_t floats = static_cast<size_t>(desc.end_byte()) / sizeof(float);
    Floats x = pattern(floats, 37), y = pattern(floats, 17), product = x;
    Floats sum(2 * channels), other(2 * channels), wanted_sum = sum, wanted_other = other;
    const ChainSums attributes{.chain = {2, {step(ChainOp::kMul, 0, 1)}, {2}}, .sums = {0, 2}};
    const std::vector<TensorDesc> operands = {desc, desc, desc, sums, sums};
    std::vector<void*> data = {x.data(), y.data(), product.data(), wanted_sum.data(),
                               wanted_other.data()};
    ASSERT_TRUE(compute_reference(attributes, operands, data.data()));
    run(attributes, operands, {x.data(), y.data(), x.data(), sum.data(), other.data()});
    expect_close(x, product);
    expect_close(sum, wanted_sum);
    expect_close(other, wanted_other);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, TrainingTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

TEST(NllLoss, ATargetOutOfRangeIsTheUsersError) {
  Floats x(12), loss(1), total(1, 1), gradient(1);
  for (int64_t target : {-1, 4}) {
    std::vector<int64_t> targets = {1, target, 0};
    const TensorDesc number = dense({});
    const TensorDesc targets_desc = dense({3}, cases::int64());
    EXPECT_THROW(run(NllLoss{}, {dense({3, 4}), targets_desc, number, number},
                     {x.data(), targets.data(), loss.data(), total.data()}),
                 std::out_of_range);
    EXPECT_THROW(run(NllLossGradient{}, {number, targets_desc, number, dense({3, 4})},
                     {gradient.data(), targets.data(), total.data(), x.data()}),
                 std::out_of_range);
  }
}

TEST(NllLoss, OfNothingIsNanAsAMeanAndZeroAsASum) {
  Floats x(12), loss(1, 7), total(1, 7);
  std::vector<int64_t> targets = {-100, -100, -100};
  for (LossReduction reduction : {LossReduction::kMean, LossReduction::kSum}) {
    run(NllLoss{.reduction = reduction},
        {dense({3, 4}), dense({3}, cases::int64()), dense({}), dense({})},
        {x.data(), targets.data(), loss.data(), total.data()});
    EXPECT_EQ(total[0], 0);
    if (reduction == LossReduction::kMean)
      EXPECT_TRUE(std::isnan(loss[0]));
    else
      EXPECT_EQ(loss[0], 0);
  }
}

TEST(EmbeddingGradient, AnIndexOutOfRangeIsTheUsersError) {
  Floats gradient(6), weight(12);
  for (int64_t index : {-1, 4}) {
    std::vector<int64_t> indices = {1, index};
    EXPECT_THROW(
        run(EmbeddingGradient{}, {dense({2, 3}), dense({2}, cases::int64()), dense({4, 3})},
            {gradient.data(), indices.data(), weight.data()}),
        std::out_of_range);
  }
}

}  // namespace
}  // namespace nimble
