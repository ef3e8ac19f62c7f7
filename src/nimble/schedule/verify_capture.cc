#include <algorithm>
#include <map>

#include "nimble/base/error.h"
#include "nimble/schedule/capture_plan.h"
#include "nimble/schedule/verify.h"

namespace nimble {
namespace {

struct Block {
  size_t bytes = 0;
  std::vector<size_t> users;  // steps
};

}  // namespace

std::vector<std::string> verify_capture(const Schedule& schedule, const std::vector<bool>& may_drop,
                                        const CapturePlan& plan) {
  std::vector<std::string> faults;
  const size_t count = plan.steps.size();
  // before[i][j]: step j has ended when step i begins.
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
  std::map<uint32_t, size_t> last;  // step, by stream
  std::map<uint32_t, size_t> step_of;
  const auto follow = [&](std::vector<bool>& row, size_t step) {
    for (size_t j = 0; j < step; ++j)
      if (before[step][j]) row[j] = true;
    row[step] = true;
  };
  for (size_t i = 0; i < count; ++i) {
    const CaptureStep& step = plan.steps[i];
    const auto previous = last.find(step.stream.index);
    if (previous != last.end()) follow(before[i], previous->second);
    if (previous == last.end() && step.stream.index > 0 && !step.forks && step.waits.empty())
      faults.push_back(message("stream ", step.stream.index, " is not part of the capture"));
    for (TaskId wait : step.waits) {
      const auto found = step_of.find(wait.index);
      if (found == step_of.end())
        faults.push_back(message("task ", step.task.index, " waits for what was not issued"));
      else
        follow(before[i], found->second);
    }
    last[step.stream.index] = i;
    step_of[step.task.index] = i;
  }
  if (step_of.size() != schedule.tasks.size()) faults.emplace_back("not every task is issued once");

  std::vector<bool> at_end(count);
  if (last.contains(0)) follow(at_end, last[0]);
  for (StreamId stream : plan.joins)
    if (last.contains(stream.index)) follow(at_end, last[stream.index]);
  if (std::find(at_end.begin(), at_end.end(), false) != at_end.end())
    faults.emplace_back("a stream is not joined");

  for (size_t b = 0; b < count; ++b)
    for (size_t a = 0; a < b; ++a) {
      if (before[b][a]) continue;
      for (const Touch& x : schedule.tasks[plan.steps[a].task.index].touches)
        for (const Touch& y : schedule.tasks[plan.steps[b].task.index].touches)
          if (x.memory == y.memory && (x.writes || y.writes) &&
              (schedule.placements[x.memory.index].order_only ||
               have_common_byte(x.bytes, y.bytes)))
            faults.push_back(message("tasks ", plan.steps[a].task.index, " and ",
                                     plan.steps[b].task.index, " share memory ", x.memory.index));
    }

  std::vector<Block> blocks;
  std::map<uint32_t, std::vector<size_t>> free;              // by stream, the last freed at the end
  std::map<uint32_t, std::pair<size_t, uint32_t>> block_of;  // by memory: block and home
  std::vector<bool> dropped(may_drop.size());
  for (size_t i = 0; i < count; ++i) {
    const CaptureStep& step = plan.steps[i];
    for (MemoryId memory : step.drops) {
      dropped[memory.index] = true;
      if (!may_drop[memory.index])
        faults.push_back(message("memory ", memory.index, " is not ours to drop"));
      else if (const auto found = block_of.find(memory.index); found != block_of.end())
        free[found->second.second].push_back(found->second.first);
    }
    for (const Touch& touch : schedule.tasks[step.task.index].touches) {
      const uint32_t memory = touch.memory.index;
      if (dropped[memory]) faults.push_back(message("memory ", memory, " is used when dropped"));
      if (!may_drop[memory] || schedule.placements[memory].bytes == 0) continue;
      if (!block_of.contains(memory)) {
        auto& idle = free[step.stream.index];
        const size_t bytes = schedule.placements[memory].bytes;
        const auto fits = std::find_if(idle.rbegin(), idle.rend(),
                                       [&](size_t block) { return blocks[block].bytes >= bytes; });
        size_t block = blocks.size();
        if (fits == idle.rend()) {
          blocks.push_back({bytes, {}});
        } else {
          block = *fits;
          idle.erase(std::next(fits).base());
        }
        for (size_t user : blocks[block].users)
          if (user != i && !before[i][user])
            faults.push_back(message("task ", step.task.index, " gets memory that task ",
                                     plan.steps[user].task.index, " still uses"));
        block_of[memory] = {block, step.stream.index};
      }
      blocks[block_of[memory].first].users.push_back(i);
    }
  }
  return faults;
}

}  // namespace nimble
