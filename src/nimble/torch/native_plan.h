#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nimble/passes/pipeline.h"
#include "nimble/torch/plan.h"

namespace nimble {

struct NativePlanOptions {
  size_t workers = 1;
  bool winograd = true;
};

// The program on our own kernels as far as there are any: imported, rewritten by the passes,
// kernels chosen by measuring, large ops divided for that many workers.
struct NativePlan {
  std::unique_ptr<Plan> plan;  // null: no op of ours in it
  std::vector<PassRecord> passes;
  size_t distinct_ops = 0;
  bool may_use_winograd = false;           // as the user allows it, and there are convolutions
  std::vector<std::string> framework_ops;  // left in it, each name once
  double select_ms = 0;
};
NativePlan make_native_plan(const Plan& framework, const NativePlanOptions& options);

}  // namespace nimble
