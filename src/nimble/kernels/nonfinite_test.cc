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

// What is infinite in one pixel reaches what this pixel has a part in, and nothing else.
TEST_P(NonfiniteTest, GradientsOfConvolutionsSpreadNoInfinity) {
  struct Shape {
    int64_t batch, in, out, size, kernel, stride, groups;
  };
  for (const Shape& s :
       {Shape{1, 20, 24, 13, 3, 1, 1}, Shape{8, 20, 24, 4, 3, 1, 1}, Shape{8, 20, 24, 4, 3, 2, 1},
        Shape{2, 3, 24, 9, 3, 2, 1}, Shape{2, 20, 20, 6, 5, 1, 20}, Shape{3, 20, 20, 7, 3, 2, 20},
        Shape{4, 20, 33, 2, 1, 1, 1}})
    for (const float value : {kInfinity, -kInfinity, kNan}) {
      const int64_t output = (s.size - 1) / s.stride + 1;
      const std::array<int64_t, 2> stride = {s.stride, s.stride};
      const std::array<int64_t, 2> padding = {s.kernel / 2, s.kernel / 2};
      const TensorDesc x = image(s.batch, s.in, s.size, s.size);
      const TensorDesc y = image(s.batch, s.out, output, output);
      const TensorDesc w = dense({s.out, s.in / s.groups, s.kernel, s.kernel});
      const std::vector<std::pair<OpAttributes, std::vector<TensorDesc>>> ops = {
          {ConvolutionBackwardInput{
               .stride = stride, .padding = padding, .groups = s.groups, .allow_winograd = true},
           {y, w, x}},
          {ConvolutionBackwardWeight{.stride = stride, .padding = padding, .groups = s.groups},
           {x, y, w}}};
      for (const auto& [op, operands] : ops)
        for (size_t operand = 0; operand < 2; ++operand) {
          if (operand == 1 && std::holds_alternative<ConvolutionBackwardInput>(op)) continue;
          SCOPED_TRACE(describe(op));
          Tensors tensors(operands);
          const std::vector<float> usual = tensors.storage[operand];
          for (const size_t at : {size_t{0}, usual.size() / 2, usual.size() - 1}) {
            tensors.storage[operand] = usual;
            tensors.storage[operand][at] = value;
            tensors.pointers[operand] = tensors.storage[operand].data();
            ASSERT_TRUE(compute_reference(op, operands, tensors.pointers.data()));
            const std::vector<float> expected = tensors.storage[2];
            for (const KernelPtr& kernel : kernel_candidates(op, operands)) {
              SCOPED_TRACE(kernel->name());
              std::fill(tensors.storage[2].begin(), tensors.storage[2].end(), -1.0F);
              run(*kernel, tensors);
              expect_alike(tensors.storage[2], expected, 1e-4F);
            }
          }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, NonfiniteTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace nimble
