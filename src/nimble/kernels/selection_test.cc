#include "nimble/kernels/selection.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "nimble/kernels/case_tensors.h"

namespace nimble {
namespace {

using cases::image;

// A 1x1 convolution whose result lies between other channels.
const Convolution kConvolution;
const std::vector<TensorDesc> kOperands = {image(1, 24, 5, 7), cases::dense({16, 24, 1, 1}),
                                           image(1, 16, 5, 7, 40)};

// Plain loops, and then something else.
class Altered : public Kernel {
 public:
  explicit Altered(std::function<void(float*)> alter) : alter_(std::move(alter)) {}
  std::string name() const override { return "altered"; }
  Work work() const override { return plain_->work(); }
  void run(const KernelArguments& arguments) const override {
    plain_->run(arguments);
    alter_(static_cast<float*>(arguments.operands[2]));
  }

 private:
  KernelPtr plain_ = plain_loops(kConvolution, kOperands);
  std::function<void(float*)> alter_;
};

KernelChoice choose_beside(const std::function<void(float*)>& alter) {
  const auto other = std::make_shared<Altered>(alter);
  KernelSelector selector(1, [&](const OpAttributes&, std::span<const TensorDesc>) {
    return std::vector<KernelPtr>{other};
  });
  return selector.choose(kConvolution, kOperands);
}

TEST(Selection, TakesAKernelOfOursThatGivesWhatAnotherGives) {
  const KernelChoice choice = choose_beside([](float*) {});
  ASSERT_GT(choice.candidates.size(), 1u);
  for (const auto& candidate : choice.candidates) EXPECT_LT(candidate.error, 1e-5);
  EXPECT_NE(choice.kernel->name(), "altered");
}

TEST(Selection, TakesNoKernelOfOursThatGivesSomethingElse) {
  const std::vector<std::function<void(float*)>> alterations = {
      [](float* y) { y[34 * 40 + 15] += 0.1f; },  // the last element
      [](float* y) { y[0] = 1e30f; },
      [](float* y) { y[40] = std::numeric_limits<float>::quiet_NaN(); },
  };
  for (const auto& alter : alterations) {
    const KernelChoice choice = choose_beside(alter);
    EXPECT_EQ(choice.kernel->name(), "altered");
    for (size_t i = 0; i + 1 < choice.candidates.size(); ++i)
      EXPECT_GT(choice.candidates[i].error, 1e-3) << choice.candidates[i].name;
  }
}

}  // namespace
}  // namespace nimble
