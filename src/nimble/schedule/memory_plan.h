#pragma once

#include <cstddef>
#include <vector>

#include "nimble/graph/graph.h"
#include "nimble/schedule/bounded_plan.h"
#include "nimble/schedule/schedule.h"

namespace nimble {

// A memory that wants a place in the arena. Others are not mentioned.
struct ArenaRequest {
  MemoryId memory;
  size_t bytes = 0;
  bool is_result = false;  // handed out after the last task
};

struct MemoryPlanStats {
  size_t lower_bound_bytes = 0;  // the most bytes live at once in the schedule's serial order
};

inline constexpr size_t kArenaAlignment = 64;

// Gives each request an offset in one arena and writes it to `schedule.placements` and
// `schedule.arena_bytes`. Two memories share bytes only if, under the schedule's partial order,
// every task that touches one happens before every task that touches the other.
// Results come first, one behind the other; until they are written, others may use their place.
// `schedule.placements` must have an entry for every memory; tasks and streams must be complete.
MemoryPlanStats plan_memory(Schedule& schedule, const std::vector<ArenaRequest>& requests,
                            size_t alignment = kArenaAlignment);

// The same, except that memories share bytes if every task that touches one is expected to end
// before any that touches the other starts. Less memory, but the schedule needs more waits: these
// edges, which keep the expected order. Its streams must keep it as well.
std::vector<Edge> plan_memory_by_time(Schedule& schedule, const std::vector<ArenaRequest>& requests,
                                      const ExpectedTimes& expected,
                                      size_t alignment = kArenaAlignment);

// Gives a planned schedule's memories other places, in an arena of at most `limit_bytes` or as
// large as it is, where streams write less of what other streams' caches have. Leaves it as it is
// if there are none.
void keep_streams_apart(Schedule& schedule, size_t limit_bytes, size_t alignment = kArenaAlignment);

// Bytes of the arena that streams write although another stream's cache has them, in a replay that
// follows another (packing_by_stream.h).
size_t bytes_taken_from_streams(const Schedule& schedule);

}  // namespace nimble
