#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include <hwy/aligned_allocator.h>
#include <hwy/targets.h>

#include "nimble/kernels/activation_reference.h"
#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/kernel.h"

// What kernels do with infinities, NaN, and numbers that are large or tiny: as plain loops do.
namespace nimble {
namespace {

using cases::dense;
using cases::image;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Tensors {
  explicit Tensors(std::span<const TensorDesc> descs) {
    for (const TensorDesc& desc : descs) {
      storage.emplace_back(static_cast<size_t>(desc.end_byte() / 4));
      for (size_t i = 0; i < storage.back().size(); ++i)
        storage.back()[i] = static_cast<float>(static_cast<int>(i * 37 % 41) - 20) / 16;
    }
    for (auto& tensor : storage) pointers.push_back(tensor.data());
  }
  std::vector<std::vector<float>> storage;
  std::vector<void*> pointers;
};

void run(const Kernel& kernel, Tensors& tensors) {
  auto packed = hwy::AllocateAligned<std::byte>(kernel.packed_bytes() + 64);
  auto scratch = hwy::AllocateAligned<std::byte>(kernel.scratch_bytes(kernel.work().whole()) + 64);
  kernel.pack(tensors.pointers.data(), packed.get());
  kernel.run({tensors.pointers.data(), packed.get(), scratch.get(), kernel.work().whole()});
}

void expect_alike(const std::vector<float>& actual, const std::vector<float>& expected,
                  float tolerance) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const bool alike = std::isnan(expected[i])   ? std::isnan(actual[i])
                       : std::isinf(expected[i]) ? actual[i] == expected[i]
                                                 : std::abs(actual[i] - expected[i]) <=
                                                       tolerance * (1 + std::abs(expected[i]));
    ASSERT_TRUE(alike) << "element " << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

class NonfiniteTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(NonfiniteTest, ActivationsOfEveryMagnitude) {
  std::vector<float> values = {0.0F, -0.0F, kInfinity, -kInfinity, kNan};
  for (float magnitude = 1e-30F; magnitude < 5e37F; magnitude *= 1.13F) {
    values.push_back(magnitude);
    values.push_back(-magnitude);
  }
  for (float x = -12; x < 12; x += 0.0137F) values.push_back(x);
  const int64_t count = static_cast<int64_t>(values.size());
  for (int kind = 0; kind <= static_cast<int>(ActivationKind::kGeluTanh); ++kind) {
    // The product of an empty sum and nothing else: its bias is what is activated.
    MatMul matmul{.constant_b = true, .alpha = 1, .bias = true, .epilogue = {}};
    matmul.epilogue.first = {static_cast<ActivationKind>(kind), 0.3F, 2.0F};
    SCOPED_TRACE(describe(matmul));
    const std::vector<TensorDesc> operands = {dense({2, 0}), dense({0, count}),
                                              [&] {
                                                TensorDesc bias = dense({1, count});
                                                bias.sizes[0] = 2;
                                                bias.strides[0] = 0;
                                                return bias;
                                              }(),
                                              dense({2, count})};
    Tensors tensors(operands);
    tensors.storage[2] = values;
    tensors.pointers[2] = tensors.storage[2].data();
    std::vector<float> expected;
    for (int row = 0; row < 2; ++row)
      for (float value : values)
        expected.push_back(reference_activation(matmul.epilogue.first, value));
    for (const KernelPtr& kernel : kernel_candidates(matmul, operands)) {
      run(*kernel, tensors);
      expect_alike(tensors.storage[3], expected, 1e-6F);
    }
  }
}

TEST_P(NonfiniteTest, ConvolutionsSpreadNoInfinity) {
  for (const float value : {kInfinity, -kInfinity, kNan})
    for (const int64_t at : {0, 1234, 20 * 13 * 11 - 1})
      for (const bool padded : {false, true}) {
        Convolution convolution{.padding = {padded, padded}, .allow_winograd = true};
        convolution.epilogue.last = {ActivationKind::kRelu};
        const int64_t less = padded ? 0 : 2;
        const std::vector<TensorDesc> operands = {image(1, 20, 13, 11), dense({24, 20, 3, 3}),
                                                  image(1, 24, 13 - less, 11 - less)};
        Tensors tensors(operands);
        tensors.storage[0][static_cast<size_t>(at)] = value;
        ASSERT_TRUE(compute_reference(convolution, operands, tensors.pointers.data()));
        const std::vector<float> expected = tensors.storage[2];
        for (const KernelPtr& kernel : kernel_candidates(convolution, operands)) {
          SCOPED_TRACE(kernel->name());
          std::fill(tensors.storage[2].begin(), tensors.storage[2].end(), -1.0F);
          run(*kernel, tensors);
          expect_alike(tensors.storage[2], expected, 1e-5F);
        }
      }
}

TEST_P(NonfiniteTest, ScaledInputsMultiplyAsTheyAre) {
  const Convolution convolution{.scale_input = true};
  for (const int64_t outputs : {3, 24})
    for (const float factor : {0.0F, -0.0F, kInfinity, -kInfinity, kNan, 1e-38F})
      for (const float value : {0.0F, kInfinity, -kInfinity, kNan, 1e38F})
        for (const int64_t channel : {0, 7, 19}) {
          const std::vector<TensorDesc> operands = {
              image(2, 20, 3, 5), dense({outputs, 20, 1, 1}),
              TensorDesc{
                  .dtype = cases::float32(), .sizes = {2, 20, 3, 5}, .strides = {20, 1, 0, 0}},
              image(2, outputs, 3, 5)};
          Tensors tensors(operands);
          tensors.storage[0][static_cast<size_t>((15 + 4) * 20 + channel)] = value;
          tensors.storage[2][static_cast<size_t>(20 + channel)] = factor;
          ASSERT_TRUE(compute_reference(convolution, operands, tensors.pointers.data()));
          const std::vector<float> expected = tensors.storage[3];
          for (const KernelPtr& kernel : kernel_candidates(convolution, operands)) {
            SCOPED_TRACE(kernel->name());
            std::fill(tensors.storage[3].begin(), tensors.storage[3].end(), -1.0F);
            run(*kernel, tensors);
            expect_alike(tensors.storage[3], expected, 1e-5F);
          }
        }
}

INSTANTIATE_TEST_SUITE_P(Targets, NonfiniteTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace nimble
