#pragma once

#include <vector>

#include "nimble/graph/graph.h"
#include "nimble/schedule/simulate_gpu.h"

namespace nimble {

// What each recorded op would be as one kernel of the framework on a GPU, by OpId.
//   flops   of convolutions, matrix products and attention; else one for each element
//   bytes   of every tensor that is read or written, once
//   blocks  of 256 threads, or tiles of 64 x 64 results
std::vector<GpuTask> estimate_gpu_work(const Graph& recorded);

// Which of them are bound by arithmetic rather than by bandwidth.
std::vector<bool> ops_that_compute(const Graph& recorded);

}  // namespace nimble
