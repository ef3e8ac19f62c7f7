#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "nimble/base/op_attributes.h"

namespace nimble {

// The loops over the reduced elements of one output, outermost first. Strides of the input.
struct ReducedLoops {
  static constexpr size_t kMax = 8;
  size_t count = 0;
  std::array<int64_t, kMax> sizes = {};
  std::array<int64_t, kMax> strides = {};
  int64_t elements() const {
    int64_t product = 1;
    for (size_t i = 0; i < count; ++i) product *= sizes[i];
    return product;
  }
};

// A run of outputs, `run` of them.
struct ReduceRun {
  const ReducedLoops* loops;
  const float* from;
  float* to;
  int64_t run;
  int64_t from_stride;
  int64_t to_stride;
};
using ReduceFunction = void (*)(const ReduceRun&);

// The best way for runs with this stride of the input. For the instruction set at hand.
ReduceFunction reduce_function(Reduce::Kind kind, const ReducedLoops& loops, int64_t from_stride);

}  // namespace nimble
