#pragma once

#include <vector>

#include "nimble/base/op_attributes.h"
#include "nimble/base/tensor_desc.h"

// The convolutions whose gradients are tested and measured.
namespace nimble::cases {

struct BackwardCase {
  Convolution convolution;
  TensorDesc input;
  TensorDesc weight;
  TensorDesc output;
};

std::vector<BackwardCase> backward_test_cases();
std::vector<BackwardCase> backward_bench_cases();

}  // namespace nimble::cases
