#pragma once

#include <string>

#include "nimble/schedule/simulate_gpu.h"

namespace nimble {

// The GPU of that name. Throws UserError with the names there are.
Gpu described_gpu(const std::string& name);

}  // namespace nimble
