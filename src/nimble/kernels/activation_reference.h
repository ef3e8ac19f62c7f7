#pragma once

#include <cmath>

#include "nimble/base/op_attributes.h"

// Activations in plain code, as the framework defines them. What vectors are tested against.
namespace nimble {

inline float reference_activation(const Activation& activation, float value) {
  const double x = value;
  const double a = activation.a;
  const double b = activation.b;
  const auto ramp = [&] { return std::isnan(x) ? x : std::fmin(std::fmax(x + 3, 0.0), 6.0); };
  const auto result = [&]() -> double {
    switch (activation.kind) {
      case ActivationKind::kNone:
        return x;
      case ActivationKind::kRelu:
        return x < 0 ? 0 : x;
      case ActivationKind::kClamp:
        return std::isnan(x) ? x : std::fmin(std::fmax(x, a), b);
      case ActivationKind::kLeakyRelu:
        return x > 0 ? x : x * a;
      case ActivationKind::kElu:
        return x > 0 ? x : a * std::expm1(x);
      case ActivationKind::kHardSwish:
        return x * ramp() / 6;
      case ActivationKind::kHardSigmoid:
        return ramp() / 6;
      case ActivationKind::kSilu:
        return x / (1 + std::exp(-x));
      case ActivationKind::kSigmoid:
        return 1 / (1 + std::exp(-x));
      case ActivationKind::kTanh:
        return std::tanh(x);
      case ActivationKind::kGeluErf:
        return x * 0.5 * (1 + std::erf(x * std::sqrt(0.5)));
      case ActivationKind::kGeluTanh:
        return 0.5 * x *
               (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    }
    return x;
  };
  return static_cast<float>(result());
}

// The gradient before the activation, given that behind it; `y` and the formulas as of
// ChainOp::kActivationGradient.
inline float reference_activation_gradient(const Activation& activation, float gradient,
                                           float value) {
  constexpr double kPi = 3.14159265358979323846;
  const double g = gradient;
  const double y = value;
  const double a = activation.a;
  const double b = activation.b;
  const auto result = [&]() -> double {
    switch (activation.kind) {
      case ActivationKind::kNone:
        return g;
      case ActivationKind::kRelu:
        return y <= a ? 0 : g;
      case ActivationKind::kClamp:
        return y > a && y < b ? g : 0;
      case ActivationKind::kLeakyRelu:
        return y > 0 ? g : g * a;
      case ActivationKind::kElu:
        return y > 0 ? g : g * a * std::exp(y);
      case ActivationKind::kHardSwish:
        return y <= -3 ? 0 : y >= 3 ? g : g * (y / 3 + 0.5);
      case ActivationKind::kHardSigmoid:
        return y > -3 && y < 3 ? g / 6 : 0;
      case ActivationKind::kSilu: {
        const double s = 1 / (1 + std::exp(-y));
        return g * s * (1 + y * (1 - s));
      }
      case ActivationKind::kSigmoid:
        return g * (1 - y) * y;
      case ActivationKind::kTanh:
        return g * (1 - y * y);
      case ActivationKind::kGeluErf: {
        const double cdf = 0.5 * (1 + std::erf(y * std::sqrt(0.5)));
        return g * (cdf + y * std::exp(-0.5 * y * y) / std::sqrt(2 * kPi));
      }
      case ActivationKind::kGeluTanh: {
        const double beta = std::sqrt(2 / kPi);
        const double t = std::tanh(beta * (y + 0.044715 * y * y * y));
        return g * (0.5 * (1 + t) + 0.5 * y * (1 - t * t) * beta * (1 + 3 * 0.044715 * y * y));
      }
    }
    return g;
  };
  return static_cast<float>(result());
}

// last(first(x) + addend); the addend counts only if there is one.
inline float reference_epilogue(const Epilogue& epilogue, float x, float addend) {
  x = reference_activation(epilogue.first, x);
  if (epilogue.add) x += addend;
  return reference_activation(epilogue.last, x);
}

}  // namespace nimble
