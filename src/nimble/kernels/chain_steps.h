#pragma once

#include <cstddef>
#include <limits>

#include "nimble/base/op_attributes.h"

namespace nimble {

// One or several steps of a chain that are computed in registers at once: an op, possibly with
// another op behind it, possibly with its result clamped.
struct ChainLoop {
  enum class Form : unsigned char {
    kStep,        // step.op alone
    kMove,        // x
    kMulThenAdd,  // (x * y) + z, each rounded
    kAddThenAdd,  // (x + y) + z
    kSubThenMul,  // (x - y) * z
    kAffine,      // (x * step.value) + addend
  };
  Form form = Form::kStep;
  ChainStep step;  // the registers in it are the loop's
  float addend = 0;
  bool clamps = false;
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
};

// Dense runs of `count` elements; out may be one of x, y, z.
struct ChainLoopArguments {
  const float* x;
  const float* y;
  const float* z;
  float* out;
  size_t count;
};
using ChainLoopFunction = void (*)(const ChainLoop&, const ChainLoopArguments&);

// For the instruction set at hand.
ChainLoopFunction chain_loop_function(const ChainLoop& loop);

}  // namespace nimble
