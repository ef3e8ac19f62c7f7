#include "nimble/schedule/simulate_gpu.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <queue>
#include <tuple>

#include "nimble/base/error.h"

namespace nimble {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Blocks of one kernel that were given their places at the same time, and so end together.
struct Wave {
  uint32_t task = 0;
  uint32_t blocks = 0;
  double left = 1;  // of each block's work
  double rate = 0;  // of that, per ns
};

class Simulation {
 public:
  Simulation(const Gpu& gpu, const std::vector<GpuTask>& tasks,
             const std::vector<std::vector<Step>>& streams, std::vector<double> issued_ns,
             const std::vector<uint32_t>& urgency)
      : gpu_(gpu),
        tasks_(tasks),
        issued_(std::move(issued_ns)),
        missing_(tasks.size()),
        ready_(tasks.size()),
        followers_(tasks.size()),
        unplaced_(tasks.size()),
        unfinished_(tasks.size()),
        urgency_(tasks.size()),
        free_(gpu.places()) {
    run_.kernels.resize(tasks.size());
    for (size_t s = 0; s < streams.size(); ++s) {
      const auto& stream = streams[s];
      for (size_t i = 0; i < stream.size(); ++i) {
        if (!urgency.empty()) urgency_[stream[i].task.index] = urgency[s];
        if (i > 0) follow(stream[i - 1].task, stream[i].task, gpu.step_ns);
        for (const Wait& wait : stream[i].waits)
          follow(streams[wait.stream.index][wait.step].task, stream[i].task,
                 gpu.step_ns + gpu.wait_ns);
      }
    }
  }

  GpuRun run() {
    for (uint32_t task = 0; task < tasks_.size(); ++task)
      if (missing_[task] == 0) start_at(task, issued_[task]);
    while (!events_.empty() || !waves_.empty()) {
      double next = events_.empty() ? kNever : std::get<0>(events_.top());
      for (const Wave& wave : waves_) next = std::min(next, end_of(wave));
      advance(next);
      finish_waves();
      take_events();
      place_blocks();
      share_gpu();
    }
    NIMBLE_ASSERT(finished_ == tasks_.size(), "the streams lock up");
    run_.total_ns = now_;
    if (now_ > 0) {
      run_.idle_share = 1 - active_ns_ / now_;
      run_.sm_share = taken_ns_ / (now_ * gpu_.sms);
    }
    return run_;
  }

 private:
  enum class Event : uint8_t { kStart, kBlocksReady };
  struct Follower {
    uint32_t task;
    double delay_ns;
  };

  void follow(TaskId before, TaskId after, double delay_ns) {
    followers_[before.index].push_back({after.index, delay_ns});
    ++missing_[after.index];
  }

  void start_at(uint32_t task, double time) { events_.emplace(time, Event::kStart, task); }

  double end_of(const Wave& wave) const { return now_ + wave.left / wave.rate; }

  void advance(double next) {
    const double passed = next - now_;
    if (running_ > 0) active_ns_ += passed;
    // Blocks go to SMs that have none as long as there are such.
    taken_ns_ += passed * std::min(gpu_.sms, gpu_.places() - free_);
    for (Wave& wave : waves_) {
      // What ends now must end, whatever rounding says.
      wave.left = end_of(wave) <= next * (1 + 1e-12) ? 0 : wave.left - passed * wave.rate;
    }
    now_ = next;
  }

  void finish_waves() {
    std::erase_if(waves_, [&](const Wave& wave) {
      if (wave.left > 0) return false;
      free_ += wave.blocks;
      unfinished_[wave.task] -= wave.blocks;
      if (unfinished_[wave.task] == 0) finish(wave.task);
      return true;
    });
  }

  void finish(uint32_t task) {
    run_.kernels[task].end_ns = now_;
    --running_;
    ++finished_;
    for (const Follower& follower : followers_[task]) {
      double& ready = ready_[follower.task];
      ready = std::max(ready, now_ + follower.delay_ns);
      if (--missing_[follower.task] == 0)
        start_at(follower.task, std::max(ready, issued_[follower.task]));
    }
  }

  void take_events() {
    while (!events_.empty() && std::get<0>(events_.top()) <= now_) {
      const auto [time, event, task] = events_.top();
      events_.pop();
      if (event == Event::kStart) {
        run_.kernels[task].begin_ns = now_;
        ++running_;
        events_.emplace(now_ + gpu_.kernel_latency_ns, Event::kBlocksReady, task);
      } else if (tasks_[task].flops <= 0 && tasks_[task].bytes <= 0) {
        finish(task);
      } else {
        unplaced_[task] = unfinished_[task] = std::max(1U, tasks_[task].blocks);
        const auto behind =
            std::upper_bound(waiting_.begin(), waiting_.end(), task,
                             [&](uint32_t a, uint32_t b) { return urgency_[a] < urgency_[b]; });
        waiting_.insert(behind, task);
      }
    }
  }

  void place_blocks() {
    while (free_ > 0 && !waiting_.empty()) {
      const uint32_t task = waiting_.front();
      const uint32_t blocks = std::min(free_, unplaced_[task]);
      waves_.push_back({task, blocks});
      free_ -= blocks;
      unplaced_[task] -= blocks;
      if (unplaced_[task] == 0) waiting_.pop_front();
    }
  }

  void share_gpu() {
    for (Wave& wave : waves_) {
      const GpuTask& task = tasks_[wave.task];
      const double blocks = std::max(1U, task.blocks);
      const double by_flops =
          task.flops > 0 ? gpu_.flops_per_ns / gpu_.sms / (task.flops / blocks) : kNever;
      const double by_bytes =
          task.bytes > 0 ? gpu_.sm_bytes_per_ns / (task.bytes / blocks) : kNever;
      wave.rate = std::min(by_flops, by_bytes);
    }
    share(gpu_.flops_per_ns, &GpuTask::flops);
    share(gpu_.bytes_per_ns, &GpuTask::bytes);
  }

  // Water filling: those that want the least first, each at most an equal share of what is left.
  void share(double capacity, double GpuTask::*work) {
    struct Demand {
      double of_block;
      Wave* wave;
    };
    std::vector<Demand> demands;
    double blocks = 0;
    for (Wave& wave : waves_) {
      const GpuTask& task = tasks_[wave.task];
      if (task.*work <= 0) continue;
      demands.push_back({wave.rate * (task.*work) / std::max(1U, task.blocks), &wave});
      blocks += wave.blocks;
    }
    std::sort(demands.begin(), demands.end(),
              [](const Demand& a, const Demand& b) { return a.of_block < b.of_block; });
    for (const Demand& demand : demands) {
      const double given = std::min(demand.of_block, capacity / blocks);
      demand.wave->rate *= given / demand.of_block;
      capacity -= given * demand.wave->blocks;
      blocks -= demand.wave->blocks;
    }
  }

  const Gpu& gpu_;
  const std::vector<GpuTask>& tasks_;
  std::vector<double> issued_;                    // by task: not before
  std::vector<uint32_t> missing_;                 // by task: ends that it needs
  std::vector<double> ready_;                     // by task: as far as is known
  std::vector<std::vector<Follower>> followers_;  // by task
  std::vector<uint32_t> unplaced_;                // by task: blocks without a place yet
  std::vector<uint32_t> unfinished_;              // by task: blocks
  std::vector<uint32_t> urgency_;                 // by task: of its stream
  using TimedEvent = std::tuple<double, Event, uint32_t>;
  std::priority_queue<TimedEvent, std::vector<TimedEvent>, std::greater<>> events_;
  std::deque<uint32_t> waiting_;  // tasks with blocks without a place, in the order they get them
  std::vector<Wave> waves_;
  uint32_t free_;  // places
  size_t running_ = 0;
  size_t finished_ = 0;
  double now_ = 0;
  double active_ns_ = 0;
  double taken_ns_ = 0;  // summed over SMs
  GpuRun run_;
};

}  // namespace

GpuRun simulate_eager(const Gpu& gpu, const std::vector<GpuTask>& tasks) {
  std::vector<Step> stream;
  std::vector<double> issued;
  for (size_t i = 0; i < tasks.size(); ++i) {
    stream.push_back({TaskId(i), {}});
    issued.push_back(static_cast<double>(i + 1) * gpu.eager_op_ns);
  }
  return Simulation(gpu, tasks, {stream}, issued, {}).run();
}

GpuRun simulate_replay(const Gpu& gpu, const std::vector<GpuTask>& tasks,
                       const std::vector<std::vector<Step>>& streams,
                       const std::vector<uint32_t>& urgency) {
  const std::vector<double> issued(tasks.size(), gpu.graph_launch_ns);
  return Simulation(gpu, tasks, streams, issued, urgency).run();
}

}  // namespace nimble
