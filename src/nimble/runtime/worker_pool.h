#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace nimble {

// Threads that help a caller to replay. One caller at a time has them; the others do without.
// Helpers spin briefly for new work, then sleep. After fork() the child starts with no helpers
// and makes its own when it first needs them.
class WorkerPool {
 public:
  // `on_thread_start` runs once on each new helper.
  explicit WorkerPool(std::function<void()> on_thread_start = {});
  ~WorkerPool();  // waits for the helpers to end
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Runs job(context, 0) here and job(context, 1) … job(context, helpers) on helpers, and returns
  // when all have returned. False, with nothing run, if another caller has the helpers or they
  // cannot be started. Jobs must not throw.
  using Job = void (*)(void* context, size_t worker);
  bool try_run(size_t helpers, Job job, void* context);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nimble
