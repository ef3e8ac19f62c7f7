#include "nimble/schedule/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "nimble/base/error.h"
#include "nimble/schedule/packing.h"
#include "nimble/schedule/packing_by_stream.h"

namespace nimble {
namespace {

// Steps of a stream are counted from 1 here, so that 0 is none.
struct Place {
  uint32_t stream = 0;
  uint32_t step = 0;
};

std::vector<Place> places_of(const Schedule& schedule) {
  std::vector<Place> places(schedule.tasks.size());
  for (uint32_t s = 0; s < schedule.streams.size(); ++s)
    for (uint32_t k = 0; k < schedule.streams[s].size(); ++k)
      places[schedule.streams[s][k].task.index] = {s, k + 1};
  return places;
}

// What is known of time when a task starts, by stream order and waits.
struct Clocks {
  std::vector<TaskId> order;    // a serial order
  std::vector<Place> places;    // by task
  std::vector<uint32_t> known;  // by task, then stream: steps that are surely done
};

Clocks make_clocks(const Schedule& schedule) {
  Clocks clocks{serial_order(schedule), places_of(schedule), {}};
  const size_t streams = schedule.streams.size();
  clocks.known.assign(schedule.tasks.size() * streams, 0);
  for (TaskId task : clocks.order) {
    const Place place = clocks.places[task.index];
    uint32_t* known = clocks.known.data() + task.index * streams;
    const auto learn_end_of = [&](uint32_t stream, uint32_t step) {
      const TaskId earlier = schedule.streams[stream][step].task;
      const uint32_t* other = clocks.known.data() + earlier.index * streams;
      for (size_t s = 0; s < streams; ++s) known[s] = std::max(known[s], other[s]);
      known[stream] = std::max(known[stream], step + 1);
    };
    const auto& stream = schedule.streams[place.stream];
    if (place.step > 1) learn_end_of(place.stream, place.step - 2);
    for (const Wait& wait : stream[place.step - 1].waits)
      learn_end_of(wait.stream.index, wait.step);
  }
  return clocks;
}

// The blocks that take room, by their first use in a serial order.
std::vector<Block> make_blocks(const Schedule& schedule, const std::vector<TaskId>& order,
                               const std::vector<ArenaRequest>& requests, size_t alignment) {
  std::vector<Block> blocks(schedule.placements.size());
  for (const ArenaRequest& request : requests) {
    NIMBLE_ASSERT(request.memory.index < blocks.size(), "memory ", request.memory.index);
    const size_t rounded = (request.bytes + alignment - 1) / alignment * alignment;
    blocks[request.memory.index] = {.memory = request.memory,
                                    .bytes = rounded,
                                    .wanted_bytes = request.bytes,
                                    .is_result = request.is_result};
  }
  for (uint32_t at = 0; at < order.size(); ++at) {
    for (const Touch& touch : schedule.tasks[order[at].index].touches) {
      if (touch.bytes.empty()) continue;
      Block& block = blocks[touch.memory.index];
      block.begin = std::min(block.begin, at);
      block.end = block.is_result ? static_cast<uint32_t>(order.size()) : at + 1;
    }
  }
  std::erase_if(blocks, [](const Block& block) { return block.bytes == 0 || block.end == 0; });
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const Block& a, const Block& b) { return a.begin < b.begin; });
  return blocks;
}

// Calls `visit(task, block)` for every task that uses a block.
template <class Visit>
void for_each_use(const Schedule& schedule, const std::vector<Block>& blocks, Visit visit) {
  constexpr uint32_t kNoBlock = UINT32_MAX;
  std::vector<uint32_t> block_of(schedule.placements.size(), kNoBlock);
  for (uint32_t block = 0; block < blocks.size(); ++block)
    block_of[blocks[block].memory.index] = block;
  for (uint32_t task = 0; task < schedule.tasks.size(); ++task)
    for (const Touch& touch : schedule.tasks[task].touches)
      if (const uint32_t block = block_of[touch.memory.index];
          block != kNoBlock && !touch.bytes.empty())
        visit(task, block);
}

void add_conflict(Conflicts& conflicts, uint32_t a, uint32_t b) {
  conflicts.set(a, b);
  conflicts.set(b, a);
}

// A block ends before another if all who use the other know, at their start, that the last step
// of each stream that uses the first is done. It can only do so if it begins first, too. A result
// never ends.
Conflicts conflicts_by_order(const Schedule& schedule, const Clocks& clocks,
                             const std::vector<Block>& blocks) {
  const size_t streams = schedule.streams.size();
  const size_t size = blocks.size();
  std::vector<uint32_t> last_use(streams * size, 0);               // by stream, then block
  std::vector<uint32_t> known_by_all(streams * size, UINT32_MAX);  // by stream, then block
  for_each_use(schedule, blocks, [&](uint32_t task, uint32_t block) {
    const Place place = clocks.places[task];
    uint32_t& last = last_use[place.stream * size + block];
    last = std::max(last, place.step);
    for (size_t s = 0; s < streams; ++s) {
      uint32_t& known = known_by_all[s * size + block];
      known = std::min(known, clocks.known[task * streams + s]);
    }
  });

  Conflicts conflicts(size, size);
  std::vector<uint32_t> in_use(size);
  for (uint32_t later = 0; later < size; ++later) {
    std::fill_n(in_use.begin(), later, 0);
    for (size_t s = 0; s < streams; ++s) {
      const uint32_t known = known_by_all[s * size + later];
      const uint32_t* last = last_use.data() + s * size;
      for (uint32_t earlier = 0; earlier < later; ++earlier)
        in_use[earlier] |= static_cast<uint32_t>(last[earlier] > known);
    }
    for (uint32_t earlier = 0; earlier < later; ++earlier)
      if (in_use[earlier] != 0 || blocks[earlier].is_result)
        add_conflict(conflicts, earlier, later);
  }
  return conflicts;
}

// A block ends before another if it is expected to, and all its tasks stand before all of the
// other's in the expected order: tasks may take no time.
Conflicts conflicts_by_time(const Schedule& schedule, const ExpectedTimes& expected,
                            const std::vector<Block>& blocks) {
  std::vector<double> starts(blocks.size(), std::numeric_limits<double>::max());
  std::vector<double> ends(blocks.size(), 0);
  for_each_use(schedule, blocks, [&](uint32_t task, uint32_t block) {
    starts[block] = std::min(starts[block], expected.start[task]);
    ends[block] = std::max(ends[block], expected.finish[task]);
  });
  Conflicts conflicts(blocks.size(), blocks.size());
  std::vector<uint32_t> open;  // may end behind the start of a later block
  for (uint32_t later = 0; later < blocks.size(); ++later) {
    std::erase_if(open, [&](uint32_t earlier) {
      return ends[earlier] <= starts[later] && blocks[earlier].end <= blocks[later].begin;
    });
    for (uint32_t earlier : open) add_conflict(conflicts, earlier, later);
    open.push_back(later);
  }
  return conflicts;
}

size_t most_bytes_live(const std::vector<Block>& blocks, size_t tasks, size_t Block::*bytes) {
  std::vector<int64_t> change(tasks + 1, 0);
  for (const Block& block : blocks) {
    change[block.begin] += static_cast<int64_t>(block.*bytes);
    change[block.end] -= static_cast<int64_t>(block.*bytes);
  }
  int64_t live = 0;
  int64_t most = 0;
  for (int64_t delta : change) most = std::max(most, live += delta);
  return static_cast<size_t>(most);
}

void put(Schedule& schedule, const std::vector<Block>& blocks, const Packing& packing) {
  for (size_t i = 0; i < blocks.size(); ++i)
    schedule.placements[blocks[i].memory.index].offset = packing.offsets[i];
  schedule.arena_bytes = blocks.empty() ? 0 : packing.bytes;
}

// Packs the blocks and says in the schedule where they are.
void place_blocks(Schedule& schedule, const std::vector<ArenaRequest>& requests,
                  const std::vector<Block>& blocks, const Conflicts& conflicts) {
  for (const ArenaRequest& request : requests) {
    Placement& placement = schedule.placements[request.memory.index];
    placement = {.in_arena = true, .is_result = request.is_result, .bytes = request.bytes};
  }
  const size_t lower_bound = most_bytes_live(blocks, schedule.tasks.size(), &Block::bytes);
  put(schedule, blocks, pack_tightly(blocks, conflicts, lower_bound));
  const std::vector<PlacedBlock> results = place_results(blocks);
  schedule.result_bytes = results.empty() ? 0 : results.back().end;
}

// For every block: who uses it first on each stream comes after the last on each stream to use a
// block that has been at the same place before.
std::vector<Edge> edges_for_shared_places(const Schedule& schedule,
                                          const std::vector<Block>& blocks) {
  const size_t streams = schedule.streams.size();
  const std::vector<Place> places = places_of(schedule);
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> first_use(streams * blocks.size(), kNone);  // by block, then stream
  std::vector<uint32_t> last_use(streams * blocks.size(), 0);       // by block, then stream
  for_each_use(schedule, blocks, [&](uint32_t task, uint32_t block) {
    const Place place = places[task];
    uint32_t& first = first_use[block * streams + place.stream];
    uint32_t& last = last_use[block * streams + place.stream];
    first = std::min(first, place.step);
    last = std::max(last, place.step);
  });
  std::vector<Edge> edges;
  std::vector<uint32_t> needed(streams);
  const auto task_at = [&](size_t stream, uint32_t step) {
    return OpId(schedule.streams[stream][step - 1].task.index);
  };
  for (size_t later = 0; later < blocks.size(); ++later) {
    std::fill(needed.begin(), needed.end(), 0);
    const size_t begin = schedule.placements[blocks[later].memory.index].offset;
    const size_t end = begin + blocks[later].bytes;
    for (size_t earlier = 0; earlier < later; ++earlier) {
      const size_t offset = schedule.placements[blocks[earlier].memory.index].offset;
      if (offset >= end || offset + blocks[earlier].bytes <= begin) continue;
      for (size_t s = 0; s < streams; ++s)
        needed[s] = std::max(needed[s], last_use[earlier * streams + s]);
    }
    for (size_t from = 0; from < streams; ++from)
      for (size_t to = 0; to < streams; ++to)
        if (const uint32_t first = first_use[later * streams + to];
            from != to && needed[from] > 0 && first != kNone)
          edges.push_back({task_at(from, needed[from]), task_at(to, first)});
  }
  return edges;
}

// The arena of a schedule as it is.
struct PlannedBlocks {
  PlannedBlocks(const Schedule& schedule, size_t alignment) : clocks(make_clocks(schedule)) {
    std::vector<ArenaRequest> requests;
    for (uint32_t i = 0; i < schedule.placements.size(); ++i)
      if (const Placement& place = schedule.placements[i]; place.in_arena)
        requests.push_back({MemoryId(i), place.bytes, place.is_result});
    blocks = make_blocks(schedule, clocks.order, requests, alignment);
    packing.bytes = schedule.arena_bytes;
    for (const Block& block : blocks)
      packing.offsets.push_back(schedule.placements[block.memory.index].offset);
  }

  Clocks clocks;
  std::vector<Block> blocks;
  Packing packing;  // as it is
};

bool have_caches(const Schedule& schedule) {
  return schedule.streams.size() > 1 && schedule.streams.size() <= StreamFootprints::kMostStreams;
}

}  // namespace

MemoryPlanStats plan_memory(Schedule& schedule, const std::vector<ArenaRequest>& requests,
                            size_t alignment) {
  const Clocks clocks = make_clocks(schedule);
  const std::vector<Block> blocks = make_blocks(schedule, clocks.order, requests, alignment);
  place_blocks(schedule, requests, blocks, conflicts_by_order(schedule, clocks, blocks));
  return {most_bytes_live(blocks, schedule.tasks.size(), &Block::wanted_bytes)};
}

std::vector<Edge> plan_memory_by_time(Schedule& schedule, const std::vector<ArenaRequest>& requests,
                                      const ExpectedTimes& expected, size_t alignment) {
  std::vector<TaskId> order;
  for (uint32_t task : expected.order) order.emplace_back(task);
  const std::vector<Block> blocks = make_blocks(schedule, order, requests, alignment);
  place_blocks(schedule, requests, blocks, conflicts_by_time(schedule, expected, blocks));
  return edges_for_shared_places(schedule, blocks);
}

void keep_streams_apart(Schedule& schedule, size_t limit_bytes, size_t alignment) {
  if (!have_caches(schedule)) return;
  const PlannedBlocks planned(schedule, alignment);
  const std::vector<Block>& blocks = planned.blocks;
  const StreamFootprints footprints(schedule, planned.clocks.order, blocks);
  if (footprints.bytes_taken(planned.packing) == 0) return;
  put(schedule, blocks,
      pack_by_stream(blocks, conflicts_by_order(schedule, planned.clocks, blocks), footprints,
                     planned.packing, limit_bytes));
}

size_t bytes_taken_from_streams(const Schedule& schedule) {
  if (!have_caches(schedule)) return 0;
  const PlannedBlocks planned(schedule, kArenaAlignment);
  return StreamFootprints(schedule, planned.clocks.order, planned.blocks)
      .bytes_taken(planned.packing);
}

}  // namespace nimble
