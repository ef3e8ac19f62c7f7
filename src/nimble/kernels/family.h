#pragma once

#include <span>
#include <vector>

#include "nimble/kernels/kernel.h"

namespace nimble {

// An op with tensors to try a kernel on.
struct KernelCase {
  OpAttributes attributes;
  std::vector<TensorDesc> operands;
};

// All that is known of the kernels of one kind of op. Each family is one folder-local set of files
// and is listed once, below; dispatch, tests and benchmarks go through the list.
struct KernelFamily {
  const char* name;
  size_t kind;              // index in OpAttributes
  float tolerance = 2e-5f;  // of a test, relative to the largest element
  std::vector<KernelPtr> (*candidates)(const OpAttributes&, std::span<const TensorDesc>);
  void (*reference)(const OpAttributes&, std::span<const TensorDesc>, void* const* data);
  std::vector<KernelCase> (*test_cases)();   // small, odd, awkward; in seconds under a sanitizer
  std::vector<KernelCase> (*bench_cases)();  // shapes of the paper's networks
};

std::span<const KernelFamily> kernel_families();

// Floating-point operations of an op, a multiply-add counting two; 0 where bytes are what counts.
double flops(const OpAttributes& attributes, std::span<const TensorDesc> operands);

}  // namespace nimble
