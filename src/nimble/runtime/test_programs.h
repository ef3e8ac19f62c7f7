#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "nimble/graph/graph.h"
#include "nimble/runtime/task_binding.h"
#include "nimble/runtime/worker_pool.h"
#include "nimble/schedule/schedule.h"

// Programs to replay in tests.

namespace nimble::testing {

// Tasks written as lambdas. Owns them, so it must outlive the replayer.
class Tasks {
 public:
  explicit Tasks(std::vector<std::function<void()>> tasks) : tasks_(std::move(tasks)) {}

  std::vector<TaskBinding> bindings() {
    std::vector<TaskBinding> bindings;
    for (auto& task : tasks_) {
      bindings.push_back(
          {[](void* context) { (*static_cast<std::function<void()>*>(context))(); }, &task});
    }
    return bindings;
  }

 private:
  std::vector<std::function<void()>> tasks_;
};

// Steps of all streams, as (task, waits).
inline Schedule make_schedule(std::vector<std::vector<Step>> streams) {
  Schedule schedule;
  for (const auto& stream : streams) {
    schedule.tasks.resize(schedule.tasks.size() + stream.size());
  }
  schedule.streams = std::move(streams);
  return schedule;
}

// `rounds` tasks on each stream; every one waits for the one before it in a ring over all streams.
// Task r * streams + s is round r of stream s.
inline Schedule ring_schedule(size_t streams, size_t rounds) {
  std::vector<std::vector<Step>> steps(streams);
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t s = 0; s < streams; ++s) {
      Step step{TaskId(round * streams + s), {}};
      if (s > 0) step.waits = {{StreamId(s - 1), static_cast<uint32_t>(round)}};
      if (s == 0 && round > 0) {
        step.waits = {{StreamId(streams - 1), static_cast<uint32_t>(round - 1)}};
      }
      steps[s].push_back(step);
    }
  }
  return make_schedule(std::move(steps));
}

// `count` tasks, each on its own stream, without waits.
inline Schedule independent_schedule(size_t count) {
  std::vector<std::vector<Step>> steps(count);
  for (size_t s = 0; s < count; ++s) steps[s] = {{TaskId(s), {}}};
  return make_schedule(std::move(steps));
}

// A graph made to run on real memory: every op mixes the bytes it reads, in an order that matters,
// into the bytes it writes. A wrong order changes a result; a missing one is a race that
// ThreadSanitizer sees.
class MixingProgram {
 public:
  // Intermediates lie in the arena where `schedule` placed them.
  MixingProgram(const Graph& graph, const Schedule& schedule)
      : arena_(schedule.arena_bytes), memories_(graph.memories.size()), ops_(graph.ops.size()) {
    for (size_t m = 0; m < memories_.size(); ++m) {
      const Placement& placement = schedule.placements[m];
      if (placement.in_arena) continue;
      // Something to mix for a random generator, too, which has no bytes of its own.
      memories_[m].resize(placement.order_only ? 8 : placement.bytes);
      for (size_t i = 0; i < memories_[m].size(); ++i) {
        memories_[m][i] = static_cast<uint8_t>(m * 31 + i);
      }
    }
    for (size_t i = 0; i < ops_.size(); ++i) {
      ops_[i].result = i;
      for (const Operand& operand : graph.ops[i].operands) {
        const Placement& placement = schedule.placements[operand.memory.index];
        const ByteSet bytes = placement.order_only ? ByteSet{0, 8} : graph.bytes_touched(operand);
        uint8_t* memory = placement.in_arena ? arena_.data() + placement.offset
                                             : memories_[operand.memory.index].data();
        ops_[i].uses.push_back({memory, bytes, operand.reads, operand.writes});
      }
    }
  }

  std::vector<TaskBinding> bindings() {
    std::vector<TaskBinding> bindings;
    for (MixOp& op : ops_) bindings.push_back({mix, &op});
    return bindings;
  }

  // What every op read and wrote, and what is left in the memory that outlives the program.
  std::pair<std::vector<uint64_t>, std::vector<std::vector<uint8_t>>> results() const {
    std::vector<uint64_t> by_op;
    for (const MixOp& op : ops_) by_op.push_back(op.result);
    return {by_op, memories_};
  }

 private:
  struct Use {
    uint8_t* memory;
    ByteSet bytes;
    bool reads;
    bool writes;
  };
  struct MixOp {
    std::vector<Use> uses;
    uint64_t result = 0;  // goes into the next replay
  };

  // Those between the stretches of a set belong to other ops, which may run at the same time.
  template <class Visit>
  static void for_each_byte(const Use& use, Visit visit) {
    const ByteSet& set = use.bytes;
    for (int64_t byte = set.begin; byte < set.end; ++byte)
      if (set.period == 0 || (byte - set.begin) % set.period < set.width) visit(use.memory[byte]);
  }

  static void mix(void* context) {
    MixOp& op = *static_cast<MixOp*>(context);
    uint64_t hash = op.result;
    for (const Use& use : op.uses) {
      if (!use.reads) continue;
      for_each_byte(use, [&](uint8_t byte) { hash = hash * 1099511 + byte; });
    }
    op.result = hash;
    for (const Use& use : op.uses) {
      if (!use.writes) continue;
      for_each_byte(use, [&](uint8_t& byte) {
        hash = hash * 6364136223846793005 + 1442695040888963407;
        byte = static_cast<uint8_t>(hash >> 56);
      });
    }
  }

  std::vector<uint8_t> arena_;
  std::vector<std::vector<uint8_t>> memories_;  // of what is not in the arena
  std::vector<MixOp> ops_;
};

// Keeps the helpers of a pool busy from another thread, from construction to destruction.
class PoolHolder {
 public:
  explicit PoolHolder(WorkerPool& pool)
      : thread_([this, &pool] {
          while (!pool.try_run(1, hold, this)) std::this_thread::yield();
        }) {
    held_.wait(false);
  }
  ~PoolHolder() {
    let_go_.store(true);
    let_go_.notify_all();
    thread_.join();
  }

 private:
  static void hold(void* context, size_t worker) {
    if (worker != 0) return;
    auto& self = *static_cast<PoolHolder*>(context);
    self.held_.store(true);
    self.held_.notify_all();
    self.let_go_.wait(false);
  }

  std::atomic<bool> held_{false};
  std::atomic<bool> let_go_{false};
  std::thread thread_;
};

}  // namespace nimble::testing
