#pragma once

#include <cstdint>
#include <vector>

#include "nimble/runtime/task_binding.h"
#include "nimble/schedule/schedule.h"

namespace nimble {

// One step of a worker. Its waits are those from the previous instruction's `waits_end` on.
struct Instruction {
  TaskBinding task;
  uint32_t waits_end = 0;
  uint32_t publish = 0;  // the step to announce after the task, counted from 1; 0: nobody waits
};

struct PlannedWait {
  uint32_t worker = 0;
  uint32_t step = 0;  // counted from 1
};

struct WorkerPlan {
  std::vector<Instruction> instructions;
  std::vector<PlannedWait> waits;
  std::vector<TaskId> tasks;  // by instruction
  StreamId stream;
};

// A schedule made flat: who runs what after which waits, with everything looked up.
struct ReplayPlan {
  std::vector<WorkerPlan> workers;  // one per stream that has steps
  uint32_t most_steps = 0;          // on one worker

  // All tasks for one thread, in the schedule's serial order.
  std::vector<TaskId> serial_tasks;
  std::vector<TaskBinding> serial;

  std::vector<StreamId> stream_of_task;
};

// `bindings` by TaskId. Throws InternalError if a schedule is not complete.
ReplayPlan plan_replay(const Schedule& schedule, const std::vector<TaskBinding>& bindings);

}  // namespace nimble
