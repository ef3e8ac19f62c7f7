#include "nimble/runtime/replay_plan.h"

#include <algorithm>

#include "nimble/base/error.h"

namespace nimble {
namespace {

// Distances between counters, over two replays, must stay below 2^31.
constexpr size_t kMaxSteps = size_t{1} << 29;

void check(const Schedule& schedule, const std::vector<TaskBinding>& bindings) {
  NIMBLE_ASSERT(bindings.size() == schedule.tasks.size(), bindings.size(), " bindings for ",
                schedule.tasks.size(), " tasks");
  NIMBLE_ASSERT(schedule.tasks.size() < kMaxSteps);
  std::vector<bool> seen(schedule.tasks.size());
  size_t steps = 0;
  for (const auto& stream : schedule.streams) {
    for (const Step& step : stream) {
      NIMBLE_ASSERT(step.task.index < seen.size() && !seen[step.task.index], "task ",
                    step.task.index);
      NIMBLE_ASSERT(bindings[step.task.index].run != nullptr, "task ", step.task.index);
      seen[step.task.index] = true;
      ++steps;
      for (const Wait& wait : step.waits) {
        NIMBLE_ASSERT(wait.stream.index < schedule.streams.size() &&
                          wait.step < schedule.streams[wait.stream.index].size(),
                      "task ", step.task.index, " waits for a step that does not exist");
      }
    }
  }
  NIMBLE_ASSERT(steps == seen.size(), seen.size() - steps, " tasks are on no stream");
}

}  // namespace

ReplayPlan plan_replay(const Schedule& schedule, const std::vector<TaskBinding>& bindings) {
  check(schedule, bindings);
  ReplayPlan plan;
  std::vector<uint32_t> worker_of_stream(schedule.streams.size());
  for (size_t s = 0; s < schedule.streams.size(); ++s) {
    const auto& stream = schedule.streams[s];
    if (stream.empty()) continue;
    worker_of_stream[s] = static_cast<uint32_t>(plan.workers.size());
    WorkerPlan& worker = plan.workers.emplace_back();
    worker.stream = StreamId(s);
    worker.instructions.resize(stream.size());
    plan.most_steps = std::max(plan.most_steps, static_cast<uint32_t>(stream.size()));
  }
  plan.stream_of_task.resize(schedule.tasks.size());
  for (WorkerPlan& worker : plan.workers) {
    const auto& stream = schedule.streams[worker.stream.index];
    for (size_t i = 0; i < stream.size(); ++i) {
      Instruction& instruction = worker.instructions[i];
      worker.tasks.push_back(stream[i].task);
      plan.stream_of_task[stream[i].task.index] = worker.stream;
      instruction.task = bindings[stream[i].task.index];
      for (const Wait& wait : stream[i].waits) {
        if (wait.stream == worker.stream) continue;  // stream order has it
        const uint32_t publisher = worker_of_stream[wait.stream.index];
        plan.workers[publisher].instructions[wait.step].publish = wait.step + 1;
        worker.waits.push_back({publisher, wait.step + 1});
      }
      instruction.waits_end = static_cast<uint32_t>(worker.waits.size());
    }
  }

  plan.serial_tasks = serial_order(schedule);
  for (TaskId task : plan.serial_tasks) plan.serial.push_back(bindings[task.index]);
  return plan;
}

}  // namespace nimble
