#include "nimble/schedule/packing_by_stream.h"

#include <algorithm>
#include <utility>

namespace nimble {
namespace {

// Of the blocks placed before, whose parts a block may be laid upon.
constexpr size_t kMostModels = 48;
// What caches have is noted for stretches of this size, so that it does not take long.
constexpr size_t kSmallestGranule = 256;
constexpr size_t kMostGranules = 4096;
// How much more room than it has now is tried, in how many steps.
constexpr size_t kLimits = 8;
constexpr int kRounds = 2;  // a replay finds the caches as the last one left them

// Which streams have which granules of the arena.
class Caches {
 public:
  explicit Caches(size_t granule_bytes) : granule_bytes_(granule_bytes) {}

  // Granules that a block's first writers take from others if it lies at an offset.
  size_t taken(const Footprint& block, size_t offset) const {
    const size_t begin = offset / granule_bytes_;
    if (begin >= holders_.size()) return 0;
    const size_t count = std::min(block.first.size(), holders_.size() - begin);
    size_t taken = 0;
    for (size_t i = 0; i < count; ++i)
      taken += static_cast<size_t>((holders_[begin + i] & ~block.first[i]) != 0);
    return taken;
  }

  void put(const Footprint& block, size_t offset) {
    const size_t begin = offset / granule_bytes_;
    if (holders_.size() < begin + block.holders.size())
      holders_.resize(begin + block.holders.size());
    std::copy(block.holders.begin(), block.holders.end(),
              holders_.begin() + static_cast<std::ptrdiff_t>(begin));
  }

 private:
  size_t granule_bytes_;
  std::vector<uint64_t> holders_;  // by granule
};

// Where another stream's bytes begin: the first granule that others hold than the one before.
size_t first_border(const std::vector<uint64_t>& granules) {
  for (size_t i = 1; i < granules.size(); ++i)
    if (granules[i] != granules[i - 1]) return i;
  return 0;
}

class PackerByStream {
 public:
  PackerByStream(const std::vector<Block>& blocks, const Conflicts& conflicts,
                 const StreamFootprints& footprints, size_t limit_bytes)
      : blocks_(blocks),
        conflicts_(conflicts),
        footprints_(footprints),
        limit_(limit_bytes),
        results_(place_results(blocks)),
        result_bytes_(results_.empty() ? 0 : results_.back().end),
        caches_(footprints.granule_bytes()) {
    for (size_t block = 0; block < blocks.size(); ++block)
      borders_.push_back(first_border(footprints[block].first) * footprints.granule_bytes());
  }

  Packing run() && {
    Packing packing;
    for (int round = 0; round < kRounds; ++round)
      if (packing = pack(); packing.bytes == kNowhere) break;
    return packing;
  }

 private:
  struct Gap {
    size_t begin;
    size_t end;
  };

  Packing pack() {
    Packing packing{std::vector<size_t>(blocks_.size(), kNowhere), result_bytes_};
    placed_ = results_;
    for (const PlacedBlock& result : results_) packing.offsets[result.block] = result.begin;
    for (uint32_t block = 0; block < blocks_.size(); ++block) {
      size_t& offset = packing.offsets[block];
      if (!blocks_[block].is_result) {
        offset = best_offset(block, packing);
        if (offset == kNowhere) return {};
        const size_t end = offset + blocks_[block].bytes;
        packing.bytes = std::max(packing.bytes, end);
        const auto place =
            std::upper_bound(placed_.begin(), placed_.end(), offset,
                             [](size_t at, const PlacedBlock& p) { return at < p.begin; });
        placed_.insert(place, {offset, end, block});
      }
      caches_.put(footprints_[block], offset);
    }
    return packing;
  }

  // Where the block has room, lowest first.
  std::vector<Gap> gaps_for(uint32_t block) const {
    const size_t bytes = blocks_[block].bytes;
    std::vector<Gap> gaps;
    const auto add = [&](size_t begin, size_t end) {
      if (begin + bytes <= end) gaps.push_back({begin, end});
    };
    const auto add_on_both_sides = [&](size_t begin, size_t end) {
      add(begin, std::min(end, result_bytes_));
      add(std::max(begin, result_bytes_), end);
    };
    size_t free_from = 0;
    for (const PlacedBlock& other : placed_) {
      if (!conflicts_.test(block, other.block)) continue;
      add_on_both_sides(free_from, other.begin);
      free_from = std::max(free_from, other.end);
    }
    add_on_both_sides(free_from, limit_);
    return gaps;
  }

  size_t best_offset(uint32_t block, const Packing& packing) {
    const size_t bytes = blocks_[block].bytes;
    const std::vector<Gap> gaps = gaps_for(block);
    candidates_.clear();
    for (const Gap& gap : gaps) {
      candidates_.push_back(gap.begin);
      candidates_.push_back(gap.end - bytes);
    }
    const size_t oldest = block > kMostModels ? block - kMostModels : 0;
    for (size_t other = oldest; other < block; ++other) {
      const size_t begin = packing.offsets[other];
      const size_t border = begin + borders_[other];
      for (size_t offset : {begin, border - std::min(border, borders_[block])})
        for (const Gap& gap : gaps)
          if (offset >= gap.begin && offset + bytes <= gap.end) candidates_.push_back(offset);
    }
    std::sort(candidates_.begin(), candidates_.end());
    candidates_.erase(std::unique(candidates_.begin(), candidates_.end()), candidates_.end());
    size_t best = kNowhere;
    std::pair<size_t, size_t> least;  // then new bytes
    for (size_t offset : candidates_) {
      const size_t end = offset + bytes;
      const std::pair price = {caches_.taken(footprints_[block], offset),
                               end - std::min(end, packing.bytes)};
      if (best != kNowhere && price >= least) continue;
      best = offset;
      least = price;
    }
    return best;
  }

  const std::vector<Block>& blocks_;
  const Conflicts& conflicts_;
  const StreamFootprints& footprints_;
  size_t limit_;
  std::vector<PlacedBlock> results_;
  size_t result_bytes_;
  Caches caches_;
  std::vector<size_t> borders_;      // by block, in bytes
  std::vector<PlacedBlock> placed_;  // so far, by `begin`
  std::vector<size_t> candidates_;   // offsets for the block at hand
};

}  // namespace

StreamFootprints::StreamFootprints(const Schedule& schedule, const std::vector<TaskId>& order,
                                   const std::vector<Block>& blocks)
    // A multiple of any alignment: places are derived from where granules begin.
    : granule_bytes_((schedule.arena_bytes / kMostGranules / kSmallestGranule + 1) *
                     kSmallestGranule) {
  constexpr uint32_t kNoBlock = UINT32_MAX;
  std::vector<uint32_t> block_of(schedule.placements.size(), kNoBlock);
  for (uint32_t block = 0; block < blocks.size(); ++block) {
    block_of[blocks[block].memory.index] = block;
    const size_t granules = (blocks[block].bytes + granule_bytes_ - 1) / granule_bytes_;
    footprints_.push_back({std::vector<uint64_t>(granules), std::vector<uint64_t>(granules)});
  }
  std::vector<uint64_t> stream_of(schedule.tasks.size());
  for (size_t stream = 0; stream < schedule.streams.size(); ++stream)
    for (const Step& step : schedule.streams[stream])
      stream_of[step.task.index] = uint64_t{1} << stream;
  for (TaskId task : order) {
    const uint64_t self = stream_of[task.index];
    for (const Touch& touch : schedule.tasks[task.index].touches) {
      const uint32_t block = block_of[touch.memory.index];
      if (block == kNoBlock || touch.bytes.empty()) continue;
      Footprint& footprint = footprints_[block];
      const bool alone = touch.writes && touch.bytes.period == 0;
      const auto begin = static_cast<size_t>(touch.bytes.begin) / granule_bytes_;
      const auto end = (static_cast<size_t>(touch.bytes.end) + granule_bytes_ - 1) / granule_bytes_;
      for (size_t i = begin; i < std::min(end, footprint.first.size()); ++i) {
        if (footprint.first[i] == 0) footprint.first[i] = self;
        footprint.holders[i] = alone ? self : footprint.holders[i] | self;
      }
    }
  }
}

size_t StreamFootprints::bytes_taken(const Packing& packing) const {
  Caches caches(granule_bytes_);
  size_t taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    taken = 0;
    for (size_t block = 0; block < footprints_.size(); ++block) {
      taken += caches.taken(footprints_[block], packing.offsets[block]);
      caches.put(footprints_[block], packing.offsets[block]);
    }
  }
  return taken * granule_bytes_;
}

Packing pack_by_stream(const std::vector<Block>& blocks, const Conflicts& conflicts,
                       const StreamFootprints& footprints, const Packing& present,
                       size_t limit_bytes) {
  Packing best = present;
  size_t least = footprints.bytes_taken(present);
  for (size_t i = 0; i <= kLimits && least > 0; ++i) {
    const size_t more = limit_bytes - std::min(limit_bytes, present.bytes);
    const size_t limit = present.bytes + more * i / kLimits / kSmallestGranule * kSmallestGranule;
    Packing packing = PackerByStream(blocks, conflicts, footprints, limit).run();
    if (packing.bytes == kNowhere) continue;
    if (const size_t taken = footprints.bytes_taken(packing); taken < least) {
      least = taken;
      best = std::move(packing);
    }
  }
  return best;
}

}  // namespace nimble
