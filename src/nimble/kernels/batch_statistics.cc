#include <algorithm>
#include <cmath>

#include "nimble/kernels/column_sums.h"
#include "nimble/kernels/families.h"

namespace nimble {
namespace {

constexpr int64_t kColumnGrain = 16;  // a cache line

// A few numbers per channel: nothing for vectors of ours.
class BatchStatisticsKernel final : public Kernel {
 public:
  BatchStatisticsKernel(const BatchStatistics& attributes, const TensorDesc& means)
      : attributes_(attributes), blocks_(means.sizes[0]), channels_(means.sizes[1]) {
    for (int64_t b = 0; b < blocks_; ++b) {
      const BlockRows rows = rows_of_block(attributes.rows, b, blocks_);
      counts_.push_back(static_cast<double>((rows.end - rows.begin) * attributes.row_elements));
      total_ += counts_.back();
    }
  }

  std::string name() const override { return "batch_statistics"; }
  Work work() const override { return {1, 0, channels_, kColumnGrain}; }

  void run(const KernelArguments& arguments) const override {
    const auto operand = [&](size_t i) { return static_cast<float*>(arguments.operands[i]); };
    for (int64_t c = arguments.part.column_begin; c < arguments.part.column_end; ++c) {
      const float* means = operand(0) + c;
      const float* squares = operand(1) + c;
      double sum = 0;
      for (int64_t b = 0; b < blocks_; ++b)
        sum += counts_[static_cast<size_t>(b)] * means[b * channels_];
      const double mean = sum / total_;
      double distance = 0;
      for (int64_t b = 0; b < blocks_; ++b) {
        const double off = means[b * channels_] - mean;
        distance += squares[b * channels_] + counts_[static_cast<size_t>(b)] * off * off;
      }
      const double shifted = distance / total_ + attributes_.epsilon;
      operand(2)[c] = static_cast<float>(mean);
      // Without variance and epsilon, 0 as in the framework.
      operand(3)[c] = static_cast<float>(shifted == 0 ? 0 : 1 / std::sqrt(shifted));
      if (!attributes_.running) continue;
      update(operand(4)[c], mean);
      update(operand(5)[c], distance / (total_ - 1));
    }
  }

 private:
  void update(float& running, double value) const {
    running = static_cast<float>(attributes_.momentum * value +
                                 (1 - attributes_.momentum) * static_cast<double>(running));
  }

  BatchStatistics attributes_;
  int64_t blocks_;
  int64_t channels_;
  std::vector<double> counts_;  // elements of a channel, by block
  double total_ = 0;
};

}  // namespace

std::vector<KernelPtr> batch_statistics_candidates(const BatchStatistics& attributes,
                                                   std::span<const TensorDesc> operands) {
  const TensorDesc& means = operands[0];
  for (size_t i = 0; i < operands.size(); ++i) {
    const TensorDesc& desc = operands[i];
    const bool vector = i > 1;
    if (desc.dtype.name != "float32" || !desc.is_dense()) return {};
    if (vector ? desc.sizes != std::vector<int64_t>{means.sizes.back()} : desc.sizes != means.sizes)
      return {};
    if (desc.sizes.back() > 1 && desc.strides.back() != 1) return {};
  }
  return {std::make_shared<BatchStatisticsKernel>(attributes, means)};
}

}  // namespace nimble
