#include "nimble/torch/rounding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "nimble/base/error.h"
#include "nimble/torch/compare.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {
namespace {

constexpr double kRoundingFactor = 16;  // of how the framework itself responds to rounding
constexpr double kMostRounding = 1e-2;
// In the median, if rounding does not explain more: 3x3 kernels by Winograd's algorithm may.
constexpr double kMostErrorOfKernels = 1e-3;
// Gradients that are zero but for rounding: what moves them is so little beside the largest one.
constexpr double kNoise = 1e-5;

// Of an output, or by how much something was changed.
double largest_of(const Observed& run, size_t result) {
  const size_t outputs = run.outputs.size();
  if (!run.result(result).is_floating_point()) return 0;
  return result < outputs
             ? largest_finite(run.outputs[result])
             : largest_change(run.before[result - outputs], run.written[result - outputs]);
}

// A parameter is rounded as a number of its size is, whatever it is changed by.
double movement(const Observed& run, const Observed& expected, size_t result) {
  const size_t outputs = expected.outputs.size();
  if (result < outputs) return distance(run.outputs[result], expected.outputs[result]);
  const at::Tensor& written = expected.written[result - outputs];
  if (!written.is_floating_point()) return 0;
  return std::max(0.0,
                  distance(run.written[result - outputs], written) - rounding_of_change(written));
}

c10::Storage copy_of(const c10::Storage& storage) {
  const auto bytes = static_cast<int64_t>(storage.nbytes());
  const at::Tensor copy = at::empty({bytes}, at::TensorOptions().dtype(at::kByte));
  if (bytes > 0) std::memcpy(copy.mutable_data_ptr(), storage.data(), storage.nbytes());
  return copy.storage();
}

// By buffer: whether the program looks at it as numbers of single precision only.
std::vector<bool> floats_in(const Trace& trace) {
  const DType single = describe(at::empty({0}, at::TensorOptions().dtype(at::kFloat))).dtype;
  std::vector<bool> is_float(trace.buffers.size(), true);
  for (const View& view : trace.views)
    if (view.desc.dtype != single) is_float[view.buffer.index] = false;
  return is_float;
}

// The same program on storages that `other` gives by buffer; where it gives none, on the same.
template <class Other>
Recording with_other_memory(const Recording& recording, const Other& other) {
  Recording copy = recording;
  for (size_t i = 0; i < recording.trace.buffers.size(); ++i) {
    if (recording.trace.buffers[i].role != Role::kExternal || !recording.storages[i]) continue;
    const std::optional<c10::Storage> storage = other(i);
    if (!storage) continue;
    copy.storages[i] = *storage;
    at::Tensor& tensor = copy.external_tensors[i];
    if (tensor.defined()) tensor = make_tensor(describe(tensor), *storage);
    for (size_t w = 0; w < recording.written_externals.size(); ++w) {
      const at::Tensor& written = recording.written_externals[w];
      if (written.storage().is_alias_of(recording.storages[i]))
        copy.written_externals[w] = make_tensor(describe(written), *storage);
    }
  }
  return copy;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void round_differently(const c10::Storage& floats, int variant) {
  auto* numbers = static_cast<float*>(floats.mutable_data());
  const size_t count = floats.nbytes() / sizeof(float);
  constexpr uint32_t kGolden = 0x9e3779b1;  // spreads what follows one another
  const uint32_t start = static_cast<uint32_t>(variant) * 0x5f356495;
  for (size_t i = 0; i < count; ++i) {
    const auto spread = static_cast<int32_t>(static_cast<uint32_t>(i) * kGolden + start);
    const float rounded = numbers[i] + numbers[i] * (static_cast<float>(spread) * 0x1p-54F);
    numbers[i] = std::isfinite(rounded) ? rounded : numbers[i];
  }
}

Recording on_rounded_copies(const Recording& recording, int variant) {
  const std::vector<bool> is_float = floats_in(recording.trace);
  return with_other_memory(recording, [&](size_t buffer) -> std::optional<c10::Storage> {
    const c10::Storage copy = copy_of(recording.storages[buffer]);
    if (is_float[buffer]) round_differently(copy, variant);
    return copy;
  });
}

Recording on_copies(const Recording& recording) {
  return with_other_memory(recording, [&](size_t buffer) -> std::optional<c10::Storage> {
    for (const at::Tensor& written : recording.written_externals)
      if (written.storage().is_alias_of(recording.storages[buffer]))
        return copy_of(recording.storages[buffer]);
    return std::nullopt;
  });
}

RoundingResponse::RoundingResponse(const Observed& expected)
    : expected_(expected), moved_(expected.results()) {
  double output = 0;
  double change = 0;
  for (size_t i = 0; i < expected.results(); ++i) {
    sizes_.push_back(largest_of(expected, i));
    double& largest = i < expected.outputs.size() ? output : change;
    largest = std::max(largest, sizes_.back());
  }
  noise_of_outputs_ = kNoise * output;
  noise_of_changes_ = kNoise * change;
}

void RoundingResponse::add(const Observed& rounded) {
  ++runs_;
  for (size_t i = 0; i < expected_.results(); ++i)
    if (!expected_.result(i).is_complex())
      moved_[i] = std::max(moved_[i], movement(rounded, expected_, i));
}

bool RoundingResponse::explains(double difference, size_t result) const {
  return difference <= std::min(kRoundingFactor * own(result), kMostRounding) * sizes_[result];
}

bool RoundingResponse::explains_most(const Observed& run) const {
  std::vector<double> errors;
  std::vector<double> moves;
  for (size_t i = 0; i < moved_.size(); ++i) {
    if (sizes_[i] == 0 || (runs_ > 0 && is_noise(i))) continue;
    errors.push_back(difference(run, i) / sizes_[i]);
    moves.push_back(moved_[i] / sizes_[i]);
  }
  return median(errors) <= std::max(kRoundingFactor * median(moves), kMostErrorOfKernels);
}

bool RoundingResponse::is_noise(size_t result) const {
  const bool is_output = result < expected_.outputs.size();
  return moved_[result] <= (is_output ? noise_of_outputs_ : noise_of_changes_);
}

double RoundingResponse::difference(const Observed& run, size_t result) const {
  return distance(run.result(result), expected_.result(result));
}

}  // namespace nimble
