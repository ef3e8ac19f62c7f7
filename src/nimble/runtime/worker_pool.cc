#include "nimble/runtime/worker_pool.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "nimble/runtime/progress.h"

namespace nimble {
namespace {

// How many forks lie between this process and the one that loaded the library.
std::atomic<uint64_t> fork_generation{0};

// Registered when the library is loaded: a guard of a later, lazy registration could itself be
// held by a thread that fork() does not copy.
[[maybe_unused]] const int fork_handler = pthread_atfork(
    nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });

// A mailbox and the thread that reads it.
struct Helper {
  Progress called;    // by the caller
  Progress finished;  // by the helper
  uint32_t calls = 0;
  std::thread thread;
};

// The helpers of one process. A forked child inherits a crew whose threads do not exist and whose
// claim may be held for ever; it leaves that crew untouched and makes its own.
struct Crew {
  const uint64_t generation = fork_generation.load(std::memory_order_relaxed);
  alignas(tuning::kCacheLine) std::atomic<bool> claimed{false};

  // Belong to whoever has the claim; helpers read them between a call and its finish.
  WorkerPool::Job job = nullptr;
  void* context = nullptr;
  std::vector<std::unique_ptr<Helper>> helpers;

  bool is_of_this_process() const {
    return generation == fork_generation.load(std::memory_order_relaxed);
  }

  bool try_claim() {
    // The plain read first: callers that find the crew busy do not pull its cache line away.
    return !claimed.load(std::memory_order_relaxed) &&
           !claimed.exchange(true, std::memory_order_acquire);
  }
  void release() { claimed.store(false, std::memory_order_release); }

  bool start_until(size_t count, const std::function<void()>& on_thread_start);
  void serve(Helper& self, size_t worker);
  void call(Helper& helper) { helper.called.publish(++helper.calls); }
};

void Crew::serve(Helper& self, size_t worker) {
  for (uint32_t next = 1;; ++next) {
    self.called.wait_for(next, tuning::kIdleSpin);
    if (job == nullptr) return;
    job(context, worker);
    self.finished.publish(next);
  }
}

bool Crew::start_until(size_t count, const std::function<void()>& on_thread_start) {
  while (helpers.size() < count) {
    auto helper = std::make_unique<Helper>();
    helpers.reserve(helpers.size() + 1);  // from here to push_back only the thread may fail
    const size_t worker = helpers.size() + 1;
    try {
      helper->thread = std::thread([this, self = helper.get(), worker, &on_thread_start] {
        if (on_thread_start) on_thread_start();
        serve(*self, worker);
      });
    } catch (const std::system_error&) {
      return false;
    }
    helpers.push_back(std::move(helper));
  }
  return true;
}

}  // namespace

struct WorkerPool::State {
  const std::function<void()> on_thread_start;
  std::atomic<Crew*> crew;

  Crew& crew_of_this_process();
};

Crew& WorkerPool::State::crew_of_this_process() {
  Crew* current = crew.load(std::memory_order_acquire);
  if (current->is_of_this_process()) [[likely]]
    return *current;
  // The inherited crew is leaked: its threads can be neither joined nor detached here.
  auto fresh = std::make_unique<Crew>();
  if (crew.compare_exchange_strong(current, fresh.get(), std::memory_order_acq_rel)) {
    return *fresh.release();
  }
  return *current;  // another thread of the child was faster
}

WorkerPool::WorkerPool(std::function<void()> on_thread_start)
    : state_(new State{std::move(on_thread_start), std::make_unique<Crew>().release()}) {}

WorkerPool::~WorkerPool() {
  std::unique_ptr<Crew> crew(state_->crew.load(std::memory_order_acquire));
  if (!crew->is_of_this_process()) {
    (void)crew.release();  // leaked, as above
    return;
  }
  crew->job = nullptr;
  for (auto& helper : crew->helpers) crew->call(*helper);
  for (auto& helper : crew->helpers) helper->thread.join();
}

bool WorkerPool::try_run(size_t helpers, Job job, void* context) {
  if (helpers == 0) {
    job(context, 0);
    return true;
  }
  Crew& crew = state_->crew_of_this_process();
  if (!crew.try_claim()) return false;
  struct Release {
    Crew& crew;
    ~Release() { crew.release(); }
  } release_at_end{crew};

  if (!crew.start_until(helpers, state_->on_thread_start)) return false;
  crew.job = job;
  crew.context = context;
  for (size_t i = 0; i < helpers; ++i) crew.call(*crew.helpers[i]);
  job(context, 0);
  for (size_t i = 0; i < helpers; ++i) {
    Helper& helper = *crew.helpers[i];
    helper.finished.wait_for(helper.calls, tuning::kWaitSpin);
  }
  return true;
}

}  // namespace nimble
