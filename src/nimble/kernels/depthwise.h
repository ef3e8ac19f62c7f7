#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nimble/kernels/family.h"

namespace nimble {

// Kernels of a convolution whose groups, input channels and output channels are as many. They are
// part of the convolution family, as are its cases.
std::vector<KernelPtr> depthwise_candidates(const Convolution&, std::span<const TensorDesc>);
std::vector<KernelCase> depthwise_test_cases();
std::vector<KernelCase> depthwise_bench_cases();

// A depthwise convolution row by row, for kernels that go on with its result while it is in cache.
class DepthwiseRows {
 public:
  struct Arguments {
    const float* input;  // of the op, first image
    const std::byte* packed;
    int64_t row;            // n * output height + y
    int64_t channel_begin;  // a multiple of lanes()
    int64_t channel_end;    // another, or the number of channels
    float* output;          // channel_begin of the row's first pixel
    int64_t output_pixel;   // from one pixel to the next
    float* next_output;     // where the next row will be written, to fetch it; or null
    const float* addend;    // like output; null if there is none
    int64_t addend_pixel;
  };
  virtual ~DepthwiseRows() = default;
  virtual int64_t lanes() const = 0;
  // The channels best taken through several rows before the next ones.
  virtual int64_t channel_block() const = 0;
  virtual size_t packed_bytes() const = 0;
  virtual void pack(const float* weight, const float* bias, std::byte* packed) const = 0;
  virtual void run(const Arguments& arguments) const = 0;
};

// Null: not for these tensors. `operands` as of the convolution; of the output, only the sizes
// count.
std::shared_ptr<const DepthwiseRows> make_depthwise_rows(const Convolution& convolution,
                                                         const TensorDesc& input,
                                                         const TensorDesc& weight,
                                                         const std::vector<int64_t>& output_sizes);

}  // namespace nimble
