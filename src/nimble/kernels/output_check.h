#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "nimble/base/op_attributes.h"
#include "nimble/base/tensor_desc.h"

namespace nimble {

class TestMemory;

// Holds what several kernels of one op compute against each other. All run on the same operands;
// copies lie in memory of the present scope.
class OutputCheck {
 public:
  // `operands` as of Kernel::run.
  OutputCheck(const OpAttributes& attributes, std::span<const TensorDesc> descs,
              std::span<void* const> operands, TestMemory& memory);

  // Before a kernel runs: what it does not write is not a number.
  void clear() const;
  // What the last kernel wrote is right.
  void keep();
  // By how much the last kernel is off, relative to the largest number. Infinity where only one of
  // the two is a number.
  double error() const;

 private:
  struct Output {
    float* numbers;
    size_t count;
    float* right;
  };
  std::vector<Output> outputs_;
};

}  // namespace nimble
