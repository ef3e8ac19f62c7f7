// What replay itself costs, with tasks that do nothing.
//
// Machines are noisy: repetitions of all benchmarks are run in a random, interleaved order, and the
// median is what to read. The counter is the time per task, wait or call.

#include <benchmark/benchmark.h>
#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "nimble/runtime/replayer.h"
#include "nimble/runtime/worker_pool.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

void do_nothing(void*) {}

std::vector<TaskBinding> empty_tasks(size_t count) {
  return std::vector<TaskBinding>(count, TaskBinding{do_nothing, nullptr});
}

// Where the two workers of a benchmark are. The kernel chooses otherwise, and when other programs
// run it often puts both on one core, which is a case of its own.
enum Cores { kTwoCores, kOneCore };

void pin_this_thread(size_t core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  pthread_setaffinity_np(pthread_self(), sizeof(cores), &cores);
}

// Pins the caller to the first core and one helper to the other or the same. Undone at the end.
class PinnedPool {
 public:
  explicit PinnedPool(int64_t where) : pool([=] { pin_this_thread(where == kTwoCores ? 1 : 0); }) {
    pthread_getaffinity_np(pthread_self(), sizeof(usual_), &usual_);
    pin_this_thread(0);
  }
  ~PinnedPool() { pthread_setaffinity_np(pthread_self(), sizeof(usual_), &usual_); }

  WorkerPool pool;

 private:
  cpu_set_t usual_;
};

benchmark::Counter time_per(size_t things) {
  return benchmark::Counter(
      static_cast<double>(things),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// The tasks in turn on `streams` streams, each `run` long; with `chained`, each run waits for the
// one before.
Schedule in_turns(size_t tasks, size_t streams, size_t run, bool chained) {
  Schedule schedule;
  schedule.tasks.resize(tasks);
  schedule.streams.resize(streams);
  for (size_t task = 0; task < tasks; ++task) {
    const size_t stream = task / run % streams;
    Step step{TaskId(task), {}};
    if (chained && task > 0 && task % run == 0) {
      const size_t before = (stream + streams - 1) % streams;
      const size_t last = schedule.streams[before].size() - 1;
      step.waits.push_back({StreamId(before), static_cast<uint32_t>(last)});
    }
    schedule.streams[stream].push_back(step);
  }
  return schedule;
}

// The floor: the same indirect calls with nothing around them.
void oracle(benchmark::State& state) {
  const auto bindings = empty_tasks(state.range(0));
  for (auto _ : state) replay_sequentially(bindings);
  state.counters["per_task"] = time_per(state.range(0));
}
BENCHMARK(oracle)->Arg(1000);

void empty_task_on_one_stream(benchmark::State& state) {
  const size_t tasks = state.range(0);
  WorkerPool pool;
  Replayer replayer(in_turns(tasks, 1, tasks, false), empty_tasks(tasks), pool);
  for (auto _ : state) replayer.run();
  state.counters["per_task"] = time_per(tasks);
}
BENCHMARK(empty_task_on_one_stream)->Arg(1000);

// Independent streams: the loop that can wait and fail, and one call of the helper per replay.
void empty_task_on_two_streams(benchmark::State& state) {
  const size_t tasks = state.range(0);
  PinnedPool pinned(kTwoCores);
  Replayer replayer(in_turns(2 * tasks, 2, tasks, false), empty_tasks(2 * tasks), pinned.pool);
  for (auto _ : state) replayer.run();
  state.counters["per_task"] = time_per(tasks);
}
BENCHMARK(empty_task_on_two_streams)->Arg(1000)->UseRealTime();

// A chain that changes sides at every task: each waits for the other worker's last.
void cross_worker_wait(benchmark::State& state) {
  constexpr size_t kTasks = 1000;
  PinnedPool pinned(state.range(0));
  Replayer replayer(in_turns(kTasks, 2, 1, true), empty_tasks(kTasks), pinned.pool);
  for (auto _ : state) replayer.run();
  state.counters["per_wait"] = time_per(kTasks);
}
BENCHMARK(cross_worker_wait)->ArgName("one_core")->Arg(kTwoCores)->Arg(kOneCore)->UseRealTime();

// More workers than this machine has cores: waits go through the kernel.
void cross_worker_wait_oversubscribed(benchmark::State& state) {
  const size_t tasks = state.range(0);
  const size_t workers = 2 * std::thread::hardware_concurrency();
  WorkerPool pool;
  Replayer replayer(in_turns(tasks, workers, 1, true), empty_tasks(tasks), pool);
  for (auto _ : state) replayer.run();
  state.counters["per_wait"] = time_per(tasks);
}
BENCHMARK(cross_worker_wait_oversubscribed)->Arg(100)->UseRealTime();

// One call of one helper and its answer, `pause_us` after the last: short finds it spinning, long
// finds it parked.
void call_helper(benchmark::State& state) {
  const std::chrono::microseconds pause(state.range(0));
  PinnedPool pinned(state.range(1));
  const auto job = [](void*, size_t) {};
  pinned.pool.try_run(1, job, nullptr);
  for (auto _ : state) {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    const Clock::time_point begin = Clock::now();
    pinned.pool.try_run(1, job, nullptr);
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  state.counters["per_call"] = time_per(1);
}
BENCHMARK(call_helper)
    ->ArgNames({"pause_us", "one_core"})
    ->ArgsProduct({{0, 1000}, {kTwoCores, kOneCore}})
    ->Iterations(200)
    ->UseManualTime();

// What the caller alone pays to call a parked helper: the kernel call that wakes it.
void wake_parked_helper(benchmark::State& state) {
  PinnedPool pinned(kTwoCores);
  Clock::time_point called;
  const auto job = [](void* context, size_t worker) {
    if (worker == 0) *static_cast<Clock::time_point*>(context) = Clock::now();
  };
  pinned.pool.try_run(1, job, &called);
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Clock::time_point begin = Clock::now();
    pinned.pool.try_run(1, job, &called);
    state.SetIterationTime(std::chrono::duration<double>(called - begin).count());
  }
  state.counters["per_call"] = time_per(1);
}
BENCHMARK(wake_parked_helper)->Iterations(200)->UseManualTime();

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  // Defaults, which the command line may override.
  std::vector<std::string> words = {
      argv[0], "--benchmark_repetitions=9", "--benchmark_enable_random_interleaving=true",
      "--benchmark_report_aggregates_only=true", "--benchmark_min_time=0.05"};
  words.insert(words.end(), argv + 1, argv + argc);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  int count = static_cast<int>(pointers.size());
  benchmark::Initialize(&count, pointers.data());
  if (benchmark::ReportUnrecognizedArguments(count, pointers.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
