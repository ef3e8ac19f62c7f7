#pragma once

#include <cstddef>
#include <vector>

#include "nimble/schedule/schedule.h"

namespace nimble {

// A memory that wants a place in the arena. Others are not mentioned.
struct ArenaRequest {
  MemoryId memory;
  size_t bytes = 0;
};

struct MemoryPlanStats {
  size_t lower_bound_bytes = 0;  // the most bytes live at once in the schedule's serial order
};

// Gives each request an offset in one arena and writes it to `schedule.placements` and
// `schedule.arena_bytes`. Two memories share bytes only if, under the schedule's partial order,
// every task that touches one happens before every task that touches the other.
// `schedule.placements` must have an entry for every memory; tasks and streams must be complete.
MemoryPlanStats plan_memory(Schedule& schedule, const std::vector<ArenaRequest>& requests,
                            size_t alignment = 64);

}  // namespace nimble
