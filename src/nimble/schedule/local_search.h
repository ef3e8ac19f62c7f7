#pragma once

#include <cstddef>

#include "nimble/schedule/bounded_plan.h"

namespace nimble {

// Changes nodes on the critical path, to take less time, and nodes next to another worker, for
// fewer edges between workers. Keeps a change that is no worse, time before edges. The same result
// every time.
void improve_plan(const BoundedProblem& problem, BoundedPlan& plan, size_t steps);

}  // namespace nimble
