#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nimble/schedule/schedule.h"

namespace nimble {

// How a schedule is issued, op by op, to streams of a device whose allocator gives a block that
// was freed on a stream to that stream again at once, whoever else still uses it.
struct CaptureStep {
  TaskId task;
  StreamId stream;
  bool forks = false;           // its stream first waits for the beginning
  std::vector<TaskId> waits;    // for the end of these
  std::vector<MemoryId> drops;  // behind the waits, before the task is issued
};

struct CapturePlan {
  std::vector<CaptureStep> steps;  // in the order they are issued
  std::vector<StreamId> joins;     // that stream 0 waits for at the end
};

// When memories that tasks allocate are dropped.
//   kClock: when the stream that allocated one has waited for every use of it, by vector clocks
//   that only waits really issued move. kNever: the oracle.
enum class DropRule : uint8_t { kClock, kNever };

// `may_drop` by MemoryId: allocated by a task, and not an output.
CapturePlan plan_capture(const Schedule& schedule, const std::vector<bool>& may_drop,
                         DropRule rule = DropRule::kClock);

// Shares no code with it: runs the plan against a model of the allocator and says which touches of
// the same bytes are not ordered, what is used after it was dropped, and what is not joined.
std::vector<std::string> verify_capture(const Schedule& schedule, const std::vector<bool>& may_drop,
                                        const CapturePlan& plan);

}  // namespace nimble
