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

// last(first(x) + addend); the addend counts only if there is one.
inline float reference_epilogue(const Epilogue& epilogue, float x, float addend) {
  x = reference_activation(epilogue.first, x);
  if (epilogue.add) x += addend;
  return reference_activation(epilogue.last, x);
}

}  // namespace nimble
