#include "nimble/schedule/schedule.h"

#include <functional>
#include <queue>

#include "nimble/base/error.h"

namespace nimble {

size_t Schedule::wait_count() const {
  size_t count = 0;
  for (const auto& stream : streams)
    for (const Step& step : stream) count += step.waits.size();
  return count;
}

// Of the streams whose next step may run, the one with the earliest task goes on.
std::vector<TaskId> serial_order(const Schedule& schedule) {
  using Next = std::pair<uint32_t, uint32_t>;  // task, stream
  std::priority_queue<Next, std::vector<Next>, std::greater<>> ready;
  std::vector<uint32_t> done(schedule.streams.size(), 0);
  std::vector<std::vector<uint32_t>> waiting(schedule.streams.size());  // by the stream awaited
  const auto look_at = [&](uint32_t s) {
    if (done[s] == schedule.streams[s].size()) return;
    const Step& step = schedule.streams[s][done[s]];
    for (const Wait& wait : step.waits) {
      if (done[wait.stream.index] > wait.step) continue;
      waiting[wait.stream.index].push_back(s);
      return;
    }
    ready.emplace(step.task.index, s);
  };
  for (uint32_t s = 0; s < schedule.streams.size(); ++s) look_at(s);

  std::vector<TaskId> order;
  order.reserve(schedule.tasks.size());
  while (!ready.empty()) {
    const auto [task, stream] = ready.top();
    ready.pop();
    order.emplace_back(task);
    ++done[stream];
    const std::vector<uint32_t> awake = std::move(waiting[stream]);
    waiting[stream].clear();
    look_at(stream);
    for (uint32_t other : awake) look_at(other);
  }
  NIMBLE_ASSERT(order.size() == schedule.tasks.size(), order.size(), " of ", schedule.tasks.size(),
                " tasks can run");
  return order;
}

}  // namespace nimble
