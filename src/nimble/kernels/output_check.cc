#include "nimble/kernels/output_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nimble/kernels/selection.h"

namespace nimble {

OutputCheck::OutputCheck(const OpAttributes& attributes, std::span<const TensorDesc> descs,
                         std::span<void* const> operands, TestMemory& memory) {
  for (size_t i = descs.size() - output_count(attributes); i < descs.size(); ++i) {
    const TensorDesc& desc = descs[i];
    const auto bytes = static_cast<size_t>(desc.end_byte() - desc.begin_byte());
    auto* right = reinterpret_cast<float*>(memory.get(bytes));
    outputs_.push_back({static_cast<float*>(operands[i]), bytes / sizeof(float), right});
  }
}

void OutputCheck::clear() const {
  for (const Output& output : outputs_)
    std::fill_n(output.numbers, output.count, std::numeric_limits<float>::quiet_NaN());
}

void OutputCheck::keep() {
  for (Output& output : outputs_) std::copy_n(output.numbers, output.count, output.right);
}

double OutputCheck::error() const {
  double worst = 0;
  for (const Output& output : outputs_) {
    float largest = 0;
    float off = 0;
    for (size_t i = 0; i < output.count; ++i) {
      const float right = output.right[i];
      const float number = output.numbers[i];
      if (std::isnan(right) && std::isnan(number)) continue;  // between the elements
      const float difference = std::abs(right - number);
      if (!(difference <= std::numeric_limits<float>::max()))
        return std::numeric_limits<double>::infinity();
      off = std::max(off, difference);
      largest = std::max(largest, std::abs(right));
    }
    if (off > 0) worst = std::max<double>(worst, off / largest);
  }
  return worst;
}

}  // namespace nimble
