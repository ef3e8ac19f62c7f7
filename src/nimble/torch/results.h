#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <vector>

#include "nimble/torch/plan.h"

namespace nimble {

// What a replay on these inputs hands out, and what else the caller sees of it: version counters
// and shapes of what it wrote. `storage_of` gives the memory of an output that the program made.
std::vector<at::Tensor> collect_results(const Plan& plan, c10::ArrayRef<at::Tensor> inputs,
                                        const std::function<c10::Storage(MemoryId)>& storage_of);

}  // namespace nimble
