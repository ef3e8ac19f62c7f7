#include "nimble/schedule/capture_plan.h"

#include <algorithm>

namespace nimble {
namespace {

struct Place {
  size_t stream = 0;
  size_t step = 0;
};

using VectorClock = std::vector<size_t>;  // by stream: how many steps are surely done

void learn(VectorClock& clock, const VectorClock& other) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

}  // namespace

CapturePlan plan_capture(const Schedule& schedule, const std::vector<bool>& may_drop,
                         DropRule rule) {
  const size_t streams = schedule.streams.size();
  std::vector<Place> places(schedule.tasks.size());
  for (size_t s = 0; s < streams; ++s)
    for (size_t i = 0; i < schedule.streams[s].size(); ++i)
      places[schedule.streams[s][i].task.index] = {s, i};
  std::vector<std::vector<TaskId>> uses(may_drop.size());
  const std::vector<TaskId> order = serial_order(schedule);
  for (TaskId task : order)
    for (const Touch& touch : schedule.tasks[task.index].touches)
      uses[touch.memory.index].push_back(task);
  // By home stream: what is not dropped yet. The first use allocates.
  std::vector<std::vector<MemoryId>> held(streams);
  for (size_t m = 0; m < may_drop.size(); ++m)
    if (may_drop[m] && !uses[m].empty() && rule == DropRule::kClock)
      held[places[uses[m].front().index].stream].push_back(MemoryId(m));

  CapturePlan plan;
  std::vector<VectorClock> now(streams, VectorClock(streams));
  std::vector<VectorClock> after(schedule.tasks.size());
  for (TaskId task : order) {
    const Place place = places[task.index];
    VectorClock& clock = now[place.stream];
    CaptureStep step{task, StreamId(place.stream), false, {}, {}};
    for (const Wait& wait : schedule.streams[place.stream][place.step].waits) {
      step.waits.push_back(schedule.streams[wait.stream.index][wait.step].task);
      learn(clock, after[step.waits.back().index]);
    }
    step.forks = place.stream > 0 && place.step == 0 && step.waits.empty();
    std::erase_if(held[place.stream], [&](MemoryId memory) {
      const bool passed = std::all_of(
          uses[memory.index].begin(), uses[memory.index].end(),
          [&](TaskId use) { return clock[places[use.index].stream] > places[use.index].step; });
      if (passed) step.drops.push_back(memory);
      return passed;
    });
    clock[place.stream] = place.step + 1;
    after[task.index] = clock;
    plan.steps.push_back(std::move(step));
  }
  for (size_t s = 1; s < streams; ++s) {
    if (now[0][s] >= schedule.streams[s].size()) continue;
    plan.joins.emplace_back(s);
    learn(now[0], now[s]);
  }
  return plan;
}

}  // namespace nimble
