#include "nimble/schedule/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "nimble/base/error.h"
#include "nimble/schedule/bit_matrix.h"

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

// A request, and when it is in use.
struct Block {
  MemoryId memory;
  size_t bytes = 0;  // rounded up to the alignment
  size_t wanted_bytes = 0;
  uint32_t begin = UINT32_MAX;  // in serial order: from its first task
  uint32_t end = 0;             // to behind its last one; a result: behind the last of all
  bool is_result = false;

  size_t lifetime() const { return end - begin; }
};

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

// Which pairs of blocks must not share bytes.
using Conflicts = BitMatrix;

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

constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

struct Packing {
  std::vector<size_t> offsets;  // by block
  size_t bytes = kNowhere;
};

enum class Fit { kLowest, kTightest };

// Looks for the places of blocks that take least room in all.
//
//   1. Several orders, each block into the lowest or the tightest gap that those before it leave:
//      no order is best for every program, and packing is cheap.
//   2. From the best: what lies on top goes first, and everything is packed again.
//
// Results lie one behind the other from the start on, and nothing across their end.
// Ends when it takes no more than all that is in use at once, or has tried for long enough.
class Packer {
 public:
  Packer(const std::vector<Block>& blocks, const Conflicts& conflicts, size_t lower_bound)
      : blocks_(blocks), conflicts_(conflicts), lower_bound_(lower_bound) {
    for (Node block = 0; block < blocks_.size(); ++block) {
      if (!blocks_[block].is_result) continue;
      results_.push_back({result_bytes_, result_bytes_ + blocks_[block].bytes, block});
      result_bytes_ += blocks_[block].bytes;
    }
  }

  size_t result_bytes() const { return result_bytes_; }

  Packing run() && {
    try_orders();
    for (size_t attempt = 0; attempt < kAttempts && goes_on(); ++attempt) lift_top(attempt);
    return std::move(best_);
  }

 private:
  static constexpr size_t kAttempts = 100;
  static constexpr size_t kMostWork = 20'000'000;  // blocks looked at: some 50 ms
  using Node = uint32_t;
  struct Placed {
    size_t begin;
    size_t end;
    Node block;
  };

  bool goes_on() const { return best_.bytes > lower_bound_ && work_ < kMostWork; }

  void try_orders() {
    std::vector<size_t> crowd(blocks_.size(), 0);  // bytes that a block has to stand beside
    for (Node block = 0; block < blocks_.size(); ++block)
      for_each_bit(conflicts_.row(block),
                   [&](Node other) { crowd[block] += blocks_[other].bytes; });
    const auto bytes = [&](Node block) { return blocks_[block].bytes; };
    const auto lifetime = [&](Node block) { return blocks_[block].lifetime(); };
    const auto area = [&](Node block) { return bytes(block) * lifetime(block); };
    try_order([&](Node a, Node b) { return bytes(a) > bytes(b); });
    try_order([&](Node a, Node b) { return area(a) > area(b); });
    try_order([&](Node a, Node b) { return lifetime(a) > lifetime(b); });
    try_order([&](Node a, Node b) { return crowd[a] > crowd[b]; });
    try_order([&](Node a, Node b) { return bytes(a) + crowd[a] > bytes(b) + crowd[b]; });
    try_order([&](Node a, Node b) { return a < b; });  // by first use
    try_order([&](Node a, Node b) { return blocks_[a].end > blocks_[b].end; });
  }

  template <class GoesFirst>
  void try_order(GoesFirst goes_first) {
    if (!goes_on()) return;
    std::vector<Node> order(blocks_.size());
    std::iota(order.begin(), order.end(), 0);
    std::erase_if(order, [&](Node block) { return blocks_[block].is_result; });
    std::stable_sort(order.begin(), order.end(), goes_first);
    for (Fit fit : {Fit::kLowest, Fit::kTightest}) {
      Packing packing = pack(order, fit, best_.bytes);
      if (packing.bytes < best_.bytes) {
        best_ = std::move(packing);
        order_ = order;
        fit_ = fit;
      }
    }
  }

  void lift_top(size_t attempt) {
    std::vector<Node> order = order_;
    const auto on_top = [&](Node block) {
      return best_.offsets[block] + blocks_[block].bytes == best_.bytes;
    };
    const auto top = std::find_if(order.begin(), order.end(), on_top);
    if (top == order.end()) return;  // a result
    // Sometimes only half of the way, so that not the same few take turns.
    const auto way = (top - order.begin()) >> (attempt % 4);
    std::rotate(top - way, top, top + 1);
    // As good is good enough: another top has its turn.
    Packing packing = pack(order, fit_, best_.bytes + 1);
    if (packing.bytes <= best_.bytes) {
      best_ = std::move(packing);
      order_ = std::move(order);
    }
  }

  // The first place from `from` on that does not lie across the end of the results.
  size_t on_one_side(size_t from, size_t bytes) const {
    return from < result_bytes_ && from + bytes > result_bytes_ ? result_bytes_ : from;
  }

  // Places blocks one after another. Gives up when it needs `limit`.
  Packing pack(const std::vector<Node>& order, Fit fit, size_t limit) {
    Packing packing{std::vector<size_t>(blocks_.size(), kNowhere), result_bytes_};
    placed_ = results_;
    for (const Placed& result : results_) packing.offsets[result.block] = result.begin;
    for (Node block : order) {
      const size_t bytes = blocks_[block].bytes;
      size_t free_from = 0;
      size_t offset = kNowhere;
      size_t tightest = kNowhere;
      for (const Placed& other : placed_) {
        if (!conflicts_.test(block, other.block)) continue;
        free_from = on_one_side(free_from, bytes);
        if (other.begin >= free_from + bytes && other.begin - free_from < tightest) {
          tightest = other.begin - free_from;
          offset = free_from;
          if (fit == Fit::kLowest || tightest == bytes) break;
        }
        free_from = std::max(free_from, other.end);
      }
      work_ += placed_.size();
      if (offset == kNowhere) offset = on_one_side(free_from, bytes);
      packing.offsets[block] = offset;
      packing.bytes = std::max(packing.bytes, offset + bytes);
      if (packing.bytes >= limit) return {};
      const auto place = std::upper_bound(placed_.begin(), placed_.end(), offset,
                                          [](size_t at, const Placed& p) { return at < p.begin; });
      placed_.insert(place, {offset, offset + bytes, block});
    }
    return packing;
  }

  const std::vector<Block>& blocks_;
  const Conflicts& conflicts_;
  size_t lower_bound_;
  std::vector<Placed> results_;
  size_t result_bytes_ = 0;
  Packing best_;
  std::vector<Node> order_;  // that gave the best
  Fit fit_ = Fit::kLowest;
  std::vector<Placed> placed_;  // so far, by `begin`
  size_t work_ = 0;
};

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

// Packs the blocks and says in the schedule where they are.
void place_blocks(Schedule& schedule, const std::vector<ArenaRequest>& requests,
                  const std::vector<Block>& blocks, const Conflicts& conflicts) {
  const size_t lower_bound = most_bytes_live(blocks, schedule.tasks.size(), &Block::bytes);
  Packer packer(blocks, conflicts, lower_bound);
  schedule.result_bytes = packer.result_bytes();
  const Packing packing = std::move(packer).run();
  for (const ArenaRequest& request : requests) {
    Placement& placement = schedule.placements[request.memory.index];
    placement = {.in_arena = true, .is_result = request.is_result, .bytes = request.bytes};
  }
  for (size_t i = 0; i < blocks.size(); ++i)
    schedule.placements[blocks[i].memory.index].offset = packing.offsets[i];
  schedule.arena_bytes = blocks.empty() ? 0 : packing.bytes;
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

}  // namespace nimble
