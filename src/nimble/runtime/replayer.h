#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nimble/runtime/task_binding.h"
#include "nimble/runtime/worker_pool.h"
#include "nimble/schedule/schedule.h"

namespace nimble {

struct TaskTime {
  TaskId task;
  StreamId stream;
  uint64_t begin_ns = 0;  // since the replay began
  uint64_t end_ns = 0;
};

// The sequential oracle: every task in recorded order on this thread. Only for memory that was
// planned for that order.
void replay_sequentially(const std::vector<TaskBinding>& bindings);

// Replays a schedule on CPU cores: stream 0 on the caller's thread, the others on helpers. If the
// helpers are busy with another call, all streams run here, in the schedule's serial order.
//
//   - Per worker a flat array of instructions; in the loop no allocation, no lock, no look-up.
//   - One progress counter per worker on its own cache line, growing for ever: "wait until worker
//     w has passed step k". A waiting worker spins briefly, then sleeps.
//   - The first exception stops every worker at its next task and is thrown here; the replayer can
//     run again.
//
// One call at a time. `pool` must outlive the replayer.
class Replayer {
 public:
  // `bindings` by TaskId.
  Replayer(const Schedule& schedule, const std::vector<TaskBinding>& bindings, WorkerPool& pool);
  ~Replayer();
  Replayer(const Replayer&) = delete;
  Replayer& operator=(const Replayer&) = delete;

  void run();
  // As run(), and says when each task ran.
  std::vector<TaskTime> run_timed();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nimble
