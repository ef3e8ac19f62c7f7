#pragma once

#include "nimble/base/op_attributes.h"

namespace nimble {

inline ChainStep chain_step(ChainOp op, int x, int y = -1, int z = -1) {
  ChainStep step;
  step.op = op;
  step.x = x;
  step.y = y;
  step.z = z;
  return step;
}

inline ChainStep scalar_step(ChainOp op, int x, float value) {
  ChainStep step = chain_step(op, x);
  step.value = value;
  return step;
}

inline ChainStep activation_step(const Activation& activation, int x) {
  ChainStep step = chain_step(ChainOp::kActivation, x);
  step.activation = activation;
  return step;
}

inline ChainStep gradient_step(const Activation& activation, int gradient, int y) {
  ChainStep step = chain_step(ChainOp::kActivationGradient, gradient, y);
  step.activation = activation;
  return step;
}

}  // namespace nimble
