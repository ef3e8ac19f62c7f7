#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "nimble/torch/device_replay.h"

// What the rest of torch/ needs of CUDA. Implemented twice: in cuda/, and in without_cuda/ for a
// build that has none (CMake option NIMBLE_CUDA).

namespace nimble {

bool cuda_is_built();
// What to do about it if it is not; empty if it is.
std::string why_no_cuda();

// From now on recordings hear of what is allocated on CUDA. False if CUDA was not used so far in
// this process: then there is nothing to hear yet.
bool listen_to_cuda_allocations();

// Plans what was recorded as graphs and captures them. Runs the program a few times on the way:
// what it writes, and the random generators, have to be saved and put back around this.
std::unique_ptr<DeviceReplay> capture_on_cuda(const CudaProgram& program);

// From the beginning of the work to its end on the current stream, as CUDA's events have it.
double device_time_us(const std::function<void()>& work);

}  // namespace nimble
