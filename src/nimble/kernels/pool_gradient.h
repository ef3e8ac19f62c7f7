#pragma once

#include <vector>

#include "nimble/kernels/image_rows.h"
#include "nimble/kernels/kernel.h"

namespace nimble {

// The output rows or columns whose windows reach over one of the input.
struct Covering {
  int64_t begin = 0;
  int64_t end = 0;
};

// A gradient that each pixel of the input gathers from the windows over it: for an average times
// the window's scale, for a maximum where the window's index names the pixel.
struct PoolGradientPlan {
  ImageRows result;  // its gradient
  ImageRows indices;
  ImageRows input;  // its gradient
  bool maximum = false;
  std::vector<Covering> rows;     // by input row
  std::vector<Covering> columns;  // by input column
  std::vector<float> scales;      // of an average, by output pixel
};

KernelPtr make_pool_gradient(PoolGradientPlan plan);

}  // namespace nimble
