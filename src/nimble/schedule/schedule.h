#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "nimble/base/byte_set.h"
#include "nimble/base/ids.h"

namespace nimble {

// The bytes of a memory that a task reads or writes.
struct Touch {
  MemoryId memory;
  ByteSet bytes;
  bool writes = false;
};

struct Task {
  std::string label;   // the op
  std::string module;  // where in the user's model
  std::vector<Touch> touches;
  double cost_ns = 0;  // measured, on the number of threads it will have
};

// "Go on when `stream` has finished its step `step`."
struct Wait {
  StreamId stream;
  uint32_t step = 0;
  auto operator<=>(const Wait&) const = default;
};

struct Step {
  TaskId task;
  std::vector<Wait> waits;  // before the task
};

// Where a memory is. `in_arena` false: somewhere else (an input, a weight, an output), alone.
struct Placement {
  bool in_arena = false;
  bool is_result = false;  // in use until after the last task, in the results' part of the arena
  size_t offset = 0;
  size_t bytes = 0;
  bool order_only = false;  // no bytes; every pair of touches is ordered (a random generator)
};

// The plan: which task on which stream, after which waits, in which memory. Immutable once made,
// and complete: `verify_schedule` needs nothing else to prove it free of races.
struct Schedule {
  std::vector<Task> tasks;  // in recorded order
  std::vector<std::vector<Step>> streams;
  std::vector<Placement> placements;  // by MemoryId
  size_t arena_bytes = 0;
  // The arena's first bytes, which are handed out after a replay: each has them in other memory.
  // No placement lies across their end.
  size_t result_bytes = 0;

  size_t wait_count() const;
};

// All tasks in an order that keeps every stream's and every wait: the recorded one if that does.
// For one thread. The streams must be complete and must not lock up.
std::vector<TaskId> serial_order(const Schedule& schedule);

}  // namespace nimble
