#pragma once

#include <ATen/core/stack.h>

#include "nimble/torch/recording.h"

namespace nimble {

// Arguments of a recorded call, made ready for a call of one's own. The recording's lists and
// constants are shared: each function copies what it changes.

void place_tensor(torch::jit::Stack& arguments, const TensorSlot& slot, at::Tensor tensor);
// Before numbers there are set: once for each argument that has some.
void own_live_argument(torch::jit::Stack& arguments, const LiveSlot& slot);
void set_live_argument(torch::jit::Stack& arguments, const LiveSlot& slot, double value);

}  // namespace nimble
