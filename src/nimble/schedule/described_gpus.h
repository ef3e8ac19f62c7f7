#pragma once

#include <string>

#include "nimble/schedule/simulate_gpu.h"

namespace nimble {

// The GPU of that name, with other numbers where they are given: "v100,eager_op_ns=20000".
// Throws UserError with the names there are.
Gpu described_gpu(const std::string& description);

}  // namespace nimble
