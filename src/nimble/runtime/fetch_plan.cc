#include "nimble/runtime/fetch_plan.h"

#include <algorithm>
#include <span>

namespace nimble {
namespace {

constexpr size_t kCacheLineBytes = 64;

// Shares what the next one wants among those before it, in whole cache lines.
void share(const WeightUse& wanted, size_t most, std::span<const TaskId> tasks,
           std::vector<WeightUse>& fetches) {
  const size_t bytes = std::min(wanted.end - wanted.begin, most);
  const size_t lines = (bytes + kCacheLineBytes - 1) / kCacheLineBytes;
  const auto place = [&](size_t i) {
    return wanted.begin + std::min(lines * i / tasks.size() * kCacheLineBytes, bytes);
  };
  for (size_t i = 0; i < tasks.size(); ++i)
    fetches[tasks[i].index] = {wanted.op, place(i), place(i + 1)};
}

}  // namespace

std::vector<WeightUse> plan_fetching(const Schedule& schedule, const std::vector<WeightUse>& uses,
                                     size_t most) {
  std::vector<WeightUse> fetches(uses.size());
  for (const std::vector<Step>& stream : schedule.streams) {
    std::vector<TaskId> alike;  // the last ones, that read the same weights
    for (const Step& step : stream) {
      const WeightUse& use = uses[step.task.index];
      if (use.begin == use.end) continue;
      if (!alike.empty() && use != uses[alike.back().index]) {
        share(use, most, alike, fetches);
        alike.clear();
      }
      alike.push_back(step.task);
    }
  }
  return fetches;
}

}  // namespace nimble
