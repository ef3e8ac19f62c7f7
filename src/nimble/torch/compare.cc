#include "nimble/torch/compare.h"

#include <algorithm>
#include <bit>
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

// What is most common has loops of its own: a step of training leaves gigabytes.
bool is_float(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat;
}

bool are_floats(const at::Tensor& a, const at::Tensor& b) {
  return is_float(a) && is_float(b) && a.sizes() == b.sizes();
}

struct Floats {
  explicit Floats(const at::Tensor& of)
      : tensor(plain(of)), data(tensor.const_data_ptr<float>()), size(tensor.numel()) {}
  float operator[](int64_t i) const { return data[i]; }
  at::Tensor tensor;
  const float* data;
  int64_t size;
};

// The bits of absolute values are in the order of the values, and those of a NaN behind all others.
// A maximum of integers is what compilers make vectors of.
constexpr int32_t kInfinity = 0x7f800000;

template <class Number>
int32_t largest_bits(int64_t size, const Number& number, int32_t bound) {
  int32_t largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    const float value = number(i);
    const int32_t bits = std::bit_cast<int32_t>(value) & 0x7fffffff;
    largest = bits < bound && bits > largest ? bits : largest;
  }
  return largest;
}

template <class Number>
double largest_of_finite(int64_t size, const Number& number) {
  return std::bit_cast<float>(largest_bits(size, number, kInfinity));
}

// Not finite if one of them is not.
template <class Number>
double largest_of(int64_t size, const Number& number) {
  return std::bit_cast<float>(largest_bits(size, number, std::numeric_limits<int32_t>::max()));
}

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
    return largest_of_finite(x.size, [&](int64_t i) { return x[i]; });
  }
  const at::Tensor magnitude = tensor.abs().to(at::kDouble);
  return at::where(magnitude.isfinite(), magnitude, 0.0).max().item<double>();
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return 0;
  if (are_floats(a, b)) {
    const Floats x(a);
    const Floats y(b);
    return largest_of(x.size, [&](int64_t i) { return x[i] - y[i]; });
  }
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

double largest_change(const at::Tensor& before, const at::Tensor& after) {
  if (after.numel() == 0) return 0;
  if (before.sizes() != after.sizes()) return largest_finite(after);
  if (!are_floats(before, after)) return largest_finite(after - before);
  const Floats from(before);
  const Floats to(after);
  return largest_of_finite(to.size, [&](int64_t i) { return to[i] - from[i]; });
}

double distance_of_changes(const Change& a, const Change& b) {
  if (a.after.numel() == 0) return 0;
  const bool changed_alike = a.before.sizes() == a.after.sizes() &&
                             b.before.sizes() == b.after.sizes() &&
                             a.after.sizes() == b.after.sizes();
  if (!changed_alike) return distance(a.after, b.after);
  if (!are_floats(a.before, a.after) || !are_floats(b.before, b.after))
    return distance(a.after - a.before, b.after - b.before);
  const Floats a_from(a.before);
  const Floats a_to(a.after);
  const Floats b_from(b.before);
  const Floats b_to(b.after);
  return largest_of(a_to.size,
                    [&](int64_t i) { return (a_to[i] - a_from[i]) - (b_to[i] - b_from[i]); });
}

bool agree(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  if (same_bytes(a, b)) return true;
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (!a.is_floating_point() && !a.is_complex()) return false;
  const double absolute = tolerance * largest_finite(b);
  if (!is_float(a)) return at::allclose(a, b, tolerance, absolute, /*equal_nan=*/true);
  if (distance(a, b) <= absolute) return true;
  const Floats x(a);
  const Floats y(b);
  for (int64_t i = 0; i < x.size; ++i)
    if (!is_close(x[i], y[i], tolerance, absolute)) return false;
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
    const double absolute = tolerance * largest_change(before, b) + rounding;
    if (distance(a, b) <= absolute) return true;
    const Floats was(before);
    const Floats x(a);
    const Floats y(b);
    for (int64_t i = 0; i < x.size; ++i) {
      const double from = was[i];
      if (!is_close(x[i] - from, y[i] - from, tolerance, absolute)) return false;
    }
    return true;
  }
  const at::Tensor was = before.to(at::kDouble);
  const at::Tensor change = b.to(at::kDouble) - was;
  return at::allclose(a.to(at::kDouble) - was, change, tolerance,
                      tolerance * largest_finite(change) + rounding, /*equal_nan=*/true);
}

}  // namespace nimble
