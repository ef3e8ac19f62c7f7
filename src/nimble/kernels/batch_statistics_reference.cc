#include <cmath>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"

namespace nimble {

// From the sums of numbers and of their squares, which the moments give.
void batch_statistics_reference(const BatchStatistics& attributes,
                                std::span<const TensorDesc> operands, void* const* data) {
  const int64_t blocks = operands[0].sizes[0];
  const int64_t channels = operands[0].sizes[1];
  const auto at = [&](size_t operand, int64_t i) -> float& {
    return static_cast<float*>(data[operand])[i];
  };
  const int64_t total = attributes.rows * attributes.row_elements;
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0;
    double squares = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t rows = (b + 1) * attributes.rows / blocks - b * attributes.rows / blocks;
      const auto count = static_cast<double>(rows * attributes.row_elements);
      const double mean = at(0, b * channels + c);
      sum += count * mean;
      squares += at(1, b * channels + c) + count * mean * mean;
    }
    const double mean = sum / static_cast<double>(total);
    const double variance = squares / static_cast<double>(total) - mean * mean;
    at(2, c) = static_cast<float>(mean);
    at(3, c) = static_cast<float>(1 / std::sqrt(variance + attributes.epsilon));
    if (!attributes.running) continue;
    const double unbiased = variance * static_cast<double>(total) / static_cast<double>(total - 1);
    const double momentum = attributes.momentum;
    at(4, c) = static_cast<float>(momentum * mean + (1 - momentum) * at(4, c));
    at(5, c) = static_cast<float>(momentum * unbiased + (1 - momentum) * at(5, c));
  }
}

namespace {

// The epsilon is large: squares of a test may be negative.
KernelCase statistics(int64_t blocks, int64_t channels, int64_t rows, bool running) {
  const TensorDesc by_block = cases::dense({blocks, channels});
  KernelCase made{
      BatchStatistics{
          .rows = rows, .row_elements = 7, .epsilon = 2, .momentum = 0.3, .running = running},
      {by_block, by_block}};
  made.operands.insert(made.operands.end(), running ? 4 : 2, cases::dense({channels}));
  return made;
}

}  // namespace

std::vector<KernelCase> batch_statistics_test_cases() {
  std::vector<KernelCase> list;
  for (bool running : {false, true})
    for (int64_t channels : {1, 16, 17, 67})
      for (int64_t blocks : {1, 2, 5}) list.push_back(statistics(blocks, channels, 13, running));
  return list;
}

std::vector<KernelCase> batch_statistics_bench_cases() {
  return {statistics(4, 64, 1024, true), statistics(4, 2048, 128, true)};
}

}  // namespace nimble
