#pragma once

#include <stdexcept>

#include "nimble/base/error.h"
#include "nimble/base/op_attributes.h"
#include "nimble/base/tensor_desc.h"

namespace nimble {

// The classes that a loss is about.
class NllTargets {
 public:
  // `weights`: null for none.
  NllTargets(const NllLoss& loss, const TensorDesc& targets, int64_t classes,
             const TensorDesc* weights)
      : ignored_(loss.ignore_index),
        classes_(classes),
        stride_(targets.strides[0]),
        weight_stride_(weights ? weights->strides[0] : 0) {}

  struct Target {
    int64_t index = 0;
    float weight = 1;
    bool counts = true;
  };
  Target at(const void* targets, const void* weights, int64_t row) const {
    const int64_t index = static_cast<const int64_t*>(targets)[row * stride_];
    if (index == ignored_) return {.counts = false};
    if (index < 0 || index >= classes_) [[unlikely]]
      throw std::out_of_range(
          message("Target ", index, " is out of bounds: there are ", classes_, " classes"));
    const float weight =
        weights ? static_cast<const float*>(weights)[index * weight_stride_] : 1.0f;
    return {.index = index, .weight = weight};
  }

 private:
  int64_t ignored_;
  int64_t classes_;
  int64_t stride_;
  int64_t weight_stride_;
};

}  // namespace nimble
