#include "nimble/torch/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace nimble {
namespace {

at::Tensor plain(const at::Tensor& tensor) {
  return tensor.resolve_conj().resolve_neg().contiguous();
}

int digits_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 53;
    case at::kFloat:
      return 24;
    case at::kHalf:
      return 11;
    default:
      return 8;
  }
}

// What is most common has loops of its own: a step of training leaves hundreds of megabytes.
bool is_float(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat;
}

struct Floats {
  explicit Floats(const at::Tensor& of)
      : tensor(plain(of)), data(tensor.const_data_ptr<float>()), size(tensor.numel()) {}
  at::Tensor tensor;
  const float* data;
  int64_t size;
};

bool is_close(double a, double b, double relative, double absolute) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  const double error = std::abs(a - b);
  return std::isfinite(error) && error <= absolute + relative * std::abs(b);
}

}  // namespace

at::Tensor copy_for_comparison(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::Tensor x = plain(a);
  const at::Tensor y = plain(b);
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

double largest_finite(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  if (is_float(tensor)) {
    const Floats x(tensor);
    float largest = 0;
    for (int64_t i = 0; i < x.size; ++i) {
      const float magnitude = std::abs(x.data[i]);
      largest = magnitude <= std::numeric_limits<float>::max() && magnitude > largest ? magnitude
                                                                                      : largest;
    }
    return largest;
  }
  const at::Tensor magnitude = tensor.abs().to(at::kDouble);
  return at::where(magnitude.isfinite(), magnitude, 0.0).max().item<double>();
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return 0;
  if (is_float(a) && is_float(b) && a.sizes() == b.sizes()) {
    const Floats x(a);
    const Floats y(b);
    double largest = 0;
    bool is_number = true;
    for (int64_t i = 0; i < x.size; ++i) {
      const double difference = std::abs(static_cast<double>(x.data[i]) - y.data[i]);
      is_number &= difference == difference;
      largest = difference > largest ? difference : largest;
    }
    return is_number ? largest : std::numeric_limits<double>::quiet_NaN();
  }
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

bool agree(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  if (same_bytes(a, b)) return true;
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (!a.is_floating_point() && !a.is_complex()) return false;
  const double absolute = tolerance * largest_finite(b);
  if (!is_float(a)) return at::allclose(a, b, tolerance, absolute, /*equal_nan=*/true);
  const Floats x(a);
  const Floats y(b);
  for (int64_t i = 0; i < x.size; ++i)
    if (!is_close(x.data[i], y.data[i], tolerance, absolute)) return false;
  return true;
}

double rounding_of_change(const at::Tensor& changed) {
  return 4 * largest_finite(changed) * std::pow(2.0, 1 - digits_of(changed.scalar_type()));
}

bool agree_in_change(const at::Tensor& before, const at::Tensor& a, const at::Tensor& b,
                     double tolerance) {
  if (same_bytes(a, b)) return true;
  if (!a.is_floating_point() || a.sizes() != before.sizes()) return agree(a, b, tolerance);
  if (b.sizes() != a.sizes() || b.scalar_type() != a.scalar_type()) return false;
  const double rounding = rounding_of_change(b);
  if (is_float(a) && is_float(before)) {
    const Floats was(before);
    const Floats x(a);
    const Floats y(b);
    double largest = 0;
    for (int64_t i = 0; i < y.size; ++i) {
      const double change = std::abs(static_cast<double>(y.data[i]) - was.data[i]);
      if (std::isfinite(change)) largest = std::max(largest, change);
    }
    const double absolute = tolerance * largest + rounding;
    for (int64_t i = 0; i < x.size; ++i) {
      const double from = was.data[i];
      if (!is_close(x.data[i] - from, y.data[i] - from, tolerance, absolute)) return false;
    }
    return true;
  }
  const at::Tensor was = before.to(at::kDouble);
  const at::Tensor change = b.to(at::kDouble) - was;
  return at::allclose(a.to(at::kDouble) - was, change, tolerance,
                      tolerance * largest_finite(change) + rounding, /*equal_nan=*/true);
}

}  // namespace nimble
