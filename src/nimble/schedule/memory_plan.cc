#include "nimble/schedule/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "nimble/base/error.h"
#include "nimble/schedule/bit_matrix.h"

namespace nimble {
namespace {

// Row t: the tasks that have ended when task t starts, by stream order and waits.
BitMatrix happens_before(const Schedule& schedule) {
  BitMatrix before(schedule.tasks.size(), schedule.tasks.size());
  std::vector<size_t> done(schedule.streams.size(), 0);
  const auto may_run = [&](const Step& step) {
    return std::all_of(step.waits.begin(), step.waits.end(),
                       [&](const Wait& wait) { return done[wait.stream.index] > wait.step; });
  };
  const auto follow = [&](TaskId task, TaskId earlier) {
    before.set(task.index, earlier.index);
    add_bits(before.row(task.index), before.row(earlier.index));
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t i = 0; i < schedule.streams.size(); ++i) {
      const auto& stream = schedule.streams[i];
      for (; done[i] < stream.size() && may_run(stream[done[i]]); ++done[i]) {
        const Step& step = stream[done[i]];
        if (done[i] > 0) follow(step.task, stream[done[i] - 1].task);
        for (const Wait& wait : step.waits)
          follow(step.task, schedule.streams[wait.stream.index][wait.step].task);
        progress = true;
      }
    }
  }
  for (size_t i = 0; i < schedule.streams.size(); ++i)
    NIMBLE_ASSERT(done[i] == schedule.streams[i].size(), "stream ", i, " never ends");
  return before;
}

// A request, and when it is in use.
struct Block {
  MemoryId memory;
  size_t bytes = 0;             // rounded up to the alignment
  std::vector<uint32_t> tasks;  // in recorded order, each once

  bool used() const { return !tasks.empty(); }
  size_t lifetime() const { return used() ? tasks.back() - tasks.front() + 1 : 0; }
};

std::vector<Block> make_blocks(const Schedule& schedule, const std::vector<ArenaRequest>& requests,
                               size_t alignment) {
  std::vector<Block> blocks;
  constexpr uint32_t kNotRequested = UINT32_MAX;
  std::vector<uint32_t> block_of(schedule.placements.size(), kNotRequested);
  for (const ArenaRequest& request : requests) {
    NIMBLE_ASSERT(request.memory.index < block_of.size(), "memory ", request.memory.index);
    block_of[request.memory.index] = static_cast<uint32_t>(blocks.size());
    const size_t rounded = (request.bytes + alignment - 1) / alignment * alignment;
    blocks.push_back({request.memory, rounded, {}});
  }
  for (uint32_t task = 0; task < schedule.tasks.size(); ++task) {
    for (const Touch& touch : schedule.tasks[task].touches) {
      const uint32_t block = block_of[touch.memory.index];
      if (block == kNotRequested || touch.bytes.empty()) continue;
      auto& tasks = blocks[block].tasks;
      if (tasks.empty() || tasks.back() != task) tasks.push_back(task);
    }
  }
  return blocks;
}

// Which pairs of blocks must not share bytes.
BitMatrix find_conflicts(const std::vector<Block>& blocks, const BitMatrix& before) {
  BitMatrix conflicts(blocks.size(), blocks.size());
  for (size_t later = 0; later < blocks.size(); ++later) {
    if (!blocks[later].used()) continue;
    const std::span<const uint64_t> any = before.row(blocks[later].tasks.front());
    std::vector<uint64_t> ended_before_all(any.begin(), any.end());
    for (uint32_t task : blocks[later].tasks) keep_bits(ended_before_all, before.row(task));
    for (size_t earlier = 0; earlier < blocks.size(); ++earlier) {
      const Block& block = blocks[earlier];
      if (earlier == later || !block.used()) continue;
      // Of every pair, the one that is used first in recorded order is the earlier one.
      const auto first_use = [&](size_t i) { return std::pair(blocks[i].tasks.front(), i); };
      if (first_use(earlier) > first_use(later)) continue;
      const bool ordered = block.tasks.back() < blocks[later].tasks.front() &&
                           std::all_of(block.tasks.begin(), block.tasks.end(), [&](uint32_t task) {
                             return ended_before_all[task / 64] >> (task % 64) & 1;
                           });
      if (ordered) continue;
      conflicts.set(earlier, later);
      conflicts.set(later, earlier);
    }
  }
  return conflicts;
}

struct Packing {
  std::vector<size_t> offsets;  // by block
  size_t bytes = std::numeric_limits<size_t>::max();
};

enum class Fit { kLowest, kTightest };

// Places blocks one after another, each into the lowest or the tightest gap between the blocks
// that conflict with it. Gives up once it is no better than `limit`.
Packing pack(const std::vector<Block>& blocks, const BitMatrix& conflicts,
             const std::vector<uint32_t>& order, Fit fit, size_t limit) {
  struct Placed {
    size_t begin;
    size_t end;
    uint32_t block;
  };
  std::vector<Placed> placed;  // by `begin`
  placed.reserve(blocks.size());
  Packing packing{std::vector<size_t>(blocks.size(), 0), 0};
  for (uint32_t block : order) {
    const size_t bytes = blocks[block].bytes;
    if (bytes == 0) continue;
    size_t free_from = 0;
    size_t offset = 0;
    size_t tightest = std::numeric_limits<size_t>::max();
    for (const Placed& other : placed) {
      if (!conflicts.test(block, other.block)) continue;
      if (other.begin > free_from) {
        const size_t gap = other.begin - free_from;
        if (gap >= bytes && gap < tightest) {
          tightest = gap;
          offset = free_from;
          if (fit == Fit::kLowest || gap == bytes) break;
        }
      }
      free_from = std::max(free_from, other.end);
    }
    if (tightest == std::numeric_limits<size_t>::max()) offset = free_from;
    packing.offsets[block] = offset;
    packing.bytes = std::max(packing.bytes, offset + bytes);
    if (packing.bytes >= limit) return {};
    const auto place = std::upper_bound(placed.begin(), placed.end(), offset,
                                        [](size_t at, const Placed& p) { return at < p.begin; });
    placed.insert(place, {offset, offset + bytes, block});
  }
  return packing;
}

// No order is best for every program, and packing is cheap: tries several and keeps the smallest.
Packing pack_best(const std::vector<Block>& blocks, const BitMatrix& conflicts) {
  std::vector<size_t> crowd(blocks.size(), 0);  // bytes that a block has to stand beside
  for (size_t block = 0; block < blocks.size(); ++block)
    for_each_bit(conflicts.row(block),
                 [&](uint32_t other) { crowd[block] += blocks[other].bytes; });
  const auto bytes = [&](uint32_t block) { return blocks[block].bytes; };
  const auto lifetime = [&](uint32_t block) { return blocks[block].lifetime(); };
  const auto area = [&](uint32_t block) { return bytes(block) * lifetime(block); };

  Packing best;
  const auto try_order = [&](auto goes_first) {
    std::vector<uint32_t> order(blocks.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), goes_first);
    for (Fit fit : {Fit::kLowest, Fit::kTightest}) {
      Packing packing = pack(blocks, conflicts, order, fit, best.bytes);
      if (packing.bytes < best.bytes) best = std::move(packing);
    }
  };
  using Node = uint32_t;
  try_order([&](Node a, Node b) { return bytes(a) > bytes(b); });
  try_order([&](Node a, Node b) { return area(a) > area(b); });
  try_order([&](Node a, Node b) { return crowd[a] > crowd[b]; });
  try_order([&](Node a, Node b) { return lifetime(a) > lifetime(b); });
  try_order([&](Node a, Node b) { return blocks[a].tasks < blocks[b].tasks; });
  return best;
}

size_t most_bytes_live(const Schedule& schedule, const std::vector<ArenaRequest>& requests,
                       const std::vector<Block>& blocks) {
  std::vector<int64_t> change(schedule.tasks.size() + 1, 0);
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!blocks[i].used()) continue;
    const auto bytes = static_cast<int64_t>(requests[i].bytes);
    change[blocks[i].tasks.front()] += bytes;
    change[blocks[i].tasks.back() + 1] -= bytes;
  }
  int64_t live = 0;
  int64_t most = 0;
  for (int64_t delta : change) most = std::max(most, live += delta);
  return static_cast<size_t>(most);
}

}  // namespace

MemoryPlanStats plan_memory(Schedule& schedule, const std::vector<ArenaRequest>& requests,
                            size_t alignment) {
  const std::vector<Block> blocks = make_blocks(schedule, requests, alignment);
  const BitMatrix conflicts = find_conflicts(blocks, happens_before(schedule));
  const Packing packing = pack_best(blocks, conflicts);
  for (size_t i = 0; i < blocks.size(); ++i) {
    Placement& placement = schedule.placements[blocks[i].memory.index];
    placement.in_arena = true;
    placement.offset = packing.offsets[i];
    placement.bytes = requests[i].bytes;
  }
  schedule.arena_bytes = packing.bytes;
  return {most_bytes_live(schedule, requests, blocks)};
}

}  // namespace nimble
