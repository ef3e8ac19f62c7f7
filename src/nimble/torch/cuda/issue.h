#pragma once

#include <ATen/ATen.h>

#include "nimble/torch/cuda/program_memory.h"

namespace nimble {

// Makes the recorded call of an op again, on the current stream. `live` by live value. The caller
// holds a FrameworkDispatch.
void issue(const Plan& plan, const Op& op, ProgramMemory& memory, c10::ArrayRef<double> live);

}  // namespace nimble
