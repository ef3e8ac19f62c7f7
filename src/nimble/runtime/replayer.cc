#include "nimble/runtime/replayer.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <utility>

#include "nimble/runtime/progress.h"
#include "nimble/runtime/replay_plan.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

// What a replay does around each task. The untimed one compiles to the bare call.
struct Untimed {
  static void run(const TaskBinding& task, TaskId, StreamId) { task.run(task.context); }
};

class Timed {
 public:
  explicit Timed(size_t tasks) : times_(tasks) {}

  // Each task has its own entry, so workers do not meet here.
  void run(const TaskBinding& task, TaskId id, StreamId stream) {
    const uint64_t begin = now();
    task.run(task.context);
    times_[id.index] = {id, stream, begin, now()};
  }
  std::vector<TaskTime> take() { return std::move(times_); }

 private:
  uint64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
  }

  std::vector<TaskTime> times_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

struct Replayer::State {
  State(const Schedule& schedule, const std::vector<TaskBinding>& bindings, WorkerPool& workers)
      : plan(plan_replay(schedule, bindings)), pool(workers), progress(plan.workers.size()) {}

  const ReplayPlan plan;
  WorkerPool& pool;
  std::vector<Progress> progress;  // by worker

  // Where the counters of this replay start: beyond every value of earlier ones, so that nothing
  // has to be reset. A counter may lag, as a worker announces only steps that somebody awaits.
  uint32_t base = 0;

  alignas(tuning::kCacheLine) std::atomic<bool> failed{false};
  std::exception_ptr error;  // written by the one who sets `failed`

  template <class Around>
  void replay(Around& around);
  template <class Around>
  void replay_serially(Around& around);
  template <class Around>
  void replay_worker(size_t index, Around& around);
  // Whether it reached the end of the stream.
  template <class Around>
  bool replay_stream(size_t index, Around& around);
};

template <class Around>
bool Replayer::State::replay_stream(size_t index, Around& around) {
  const WorkerPlan& worker = plan.workers[index];
  const PlannedWait* const waits = worker.waits.data();
  uint32_t waited = 0;
  size_t step = 0;
  for (const Instruction& instruction : worker.instructions) {
    for (; waited != instruction.waits_end; ++waited) {
      const PlannedWait& wait = waits[waited];
      progress[wait.worker].wait_for(base + wait.step, tuning::kWaitSpin);
    }
    // After the waits: a worker that failed announces steps it did not run, but fails first.
    if (failed.load(std::memory_order_relaxed)) [[unlikely]]
      return false;
    around.run(instruction.task, worker.tasks[step++], worker.stream);
    if (instruction.publish != 0) progress[index].publish(base + instruction.publish);
  }
  return true;
}

template <class Around>
void Replayer::State::replay_worker(size_t index, Around& around) {
  try {
    if (replay_stream(index, around)) return;
  } catch (...) {
    if (!failed.exchange(true, std::memory_order_relaxed)) error = std::current_exception();
  }
  progress[index].publish(base + plan.most_steps);  // nobody may wait for what will not come
}

template <class Around>
void Replayer::State::replay(Around& around) {
  struct Replay {
    State& state;
    Around& around;
  } replay{*this, around};
  const auto job = [](void* context, size_t worker) {
    const Replay& replay = *static_cast<Replay*>(context);
    replay.state.replay_worker(worker, replay.around);
  };
  if (plan.workers.size() > 1 && pool.try_run(plan.workers.size() - 1, job, &replay)) {
    base += plan.most_steps;
    if (!failed.load(std::memory_order_relaxed)) [[likely]]
      return;
    failed.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(error, nullptr));
  }
  replay_serially(around);
}

template <class Around>
void Replayer::State::replay_serially(Around& around) {
  for (size_t i = 0; i < plan.serial.size(); ++i) {
    const TaskId task = plan.serial_tasks[i];
    around.run(plan.serial[i], task, plan.stream_of_task[task.index]);
  }
}

Replayer::Replayer(const Schedule& schedule, const std::vector<TaskBinding>& bindings,
                   WorkerPool& pool)
    : state_(std::make_unique<State>(schedule, bindings, pool)) {}

Replayer::~Replayer() = default;

void Replayer::run() {
  Untimed untimed;
  state_->replay(untimed);
}

std::vector<TaskTime> Replayer::run_timed() {
  Timed timed(state_->plan.serial.size());
  state_->replay(timed);
  return timed.take();
}

}  // namespace nimble
