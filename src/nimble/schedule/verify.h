#pragma once

#include <string>
#include <vector>

#include "nimble/base/byte_set.h"
#include "nimble/schedule/schedule.h"

namespace nimble {

// Proves a schedule free of races, from the schedule alone; shares no code with what makes one.
//
//   1. Every task stands on exactly one stream; waits name steps that exist; no deadlock.
//   2. Happens-before is stream order plus waits, closed transitively. What follows from it holds
//      for every way to run the schedule, one task after another included.
//   3. Two tasks that touch common bytes of one memory, at least one writing, are ordered as
//      recorded (every two touches of an order-only memory count as such).
//   4. Two memories that share bytes of the arena: every task of one happens before every task of
//      the other. Placements lie inside the arena, touches inside their placement.
//
// Returns one sentence per violation; none means proven.
std::vector<std::string> verify_schedule(const Schedule& schedule);

// What step 3 asks of two touches. Exact, and written without ByteSet's own functions, which the
// schedules to be checked were made with.
bool have_common_byte(const ByteSet& a, const ByteSet& b);

}  // namespace nimble
