#include <algorithm>

#include "nimble/kernels/column_sums.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/loop_nest.h"

namespace nimble {
namespace {

constexpr int64_t kCached = 4096;  // elements that stay in the first-level cache

// Sums of numbers and of their squares, as doubles: squares of floats are exact in them, and so
// the difference that gives the variance loses no more than the floats themselves do.
class ChannelMomentsKernel final : public Kernel {
 public:
  ChannelMomentsKernel(LoopNest nest, const TensorDesc& input, const TensorDesc& means)
      : nest_(std::move(nest)),
        block_count_(means.sizes[0]),
        channels_(means.sizes[1]),
        row_elements_(input.sizes.size() == 4 ? input.sizes[3] : 1),
        add_(column_moments()) {}

  std::string name() const override { return "channel_moments"; }
  Work work() const override { return {block_count_, block_count_ > 1 ? 1 : 0, 1, 0}; }
  size_t scratch_bytes(const Part&) const override {
    return 2 * static_cast<size_t>(channels_) * sizeof(double);
  }

  void run(const KernelArguments& arguments) const override {
    auto* sums = reinterpret_cast<double*>(arguments.scratch);
    double* squares = sums + channels_;
    for (int64_t b = arguments.part.row_begin; b < arguments.part.row_end; ++b) {
      std::fill_n(sums, 2 * channels_, 0.0);
      const BlockRows rows = rows_of_block(nest_.rows(), b, block_count_);
      nest_.for_each_tile(rows.begin, rows.end, [&](const LoopNest::Tile& tile) {
        add_tile(static_cast<const float*>(arguments.operands[0]) + tile.offsets[0], tile, sums,
                 squares);
      });
      const auto count = static_cast<double>((rows.end - rows.begin) * row_elements_);
      float* means = static_cast<float*>(arguments.operands[1]) + b * channels_;
      float* distances = static_cast<float*>(arguments.operands[2]) + b * channels_;
      for (int64_t c = 0; c < channels_; ++c) {
        const double mean = count > 0 ? sums[c] / count : 0;
        const double distance = squares[c] - sums[c] * mean;
        means[c] = static_cast<float>(mean);
        distances[c] = static_cast<float>(distance < 0 ? 0 : distance);  // a NaN stays
      }
    }
  }

 private:
  void add_tile(const float* from, const LoopNest::Tile& tile, double* sums,
                double* squares) const {
    const int64_t row_stride = nest_.row_stride(0);
    if (nest_.run_stride(0) != 1) {
      for (int64_t c = 0; c < channels_; ++c)
        for (int64_t i = 0; i < tile.rows; ++i) {
          const double x = from[i * row_stride + c * nest_.run_stride(0)];
          sums[c] += x;
          squares[c] += x * x;
        }
      return;
    }
    const int64_t step = std::max<int64_t>(kCached / channels_, 8);
    for (int64_t i = 0; i < tile.rows; i += step)
      add_({from + i * row_stride, std::min(step, tile.rows - i), channels_, row_stride}, sums,
           squares);
  }

  LoopNest nest_;
  int64_t block_count_;
  int64_t channels_;
  int64_t row_elements_;
  ColumnMoments add_;
};

}  // namespace

std::vector<KernelPtr> channel_moments_candidates(const ChannelMoments&,
                                                  std::span<const TensorDesc> operands) {
  const TensorDesc& input = operands[0];
  if (input.sizes.empty()) return {};
  const int64_t channels = input.sizes.size() == 4 ? input.sizes[1] : input.sizes.back();
  for (const TensorDesc& desc : operands)
    if (desc.dtype.name != "float32") return {};
  for (const TensorDesc& desc : operands.subspan(1))
    if (desc.sizes != std::vector<int64_t>{operands[1].sizes[0], channels} || !desc.is_dense() ||
        (channels > 1 && desc.strides[1] != 1))
      return {};
  auto nest = LoopNest::make_by_channels(operands.first(1));
  if (!nest) return {};
  return {std::make_shared<ChannelMomentsKernel>(*std::move(nest), input, operands[1])};
}

}  // namespace nimble
