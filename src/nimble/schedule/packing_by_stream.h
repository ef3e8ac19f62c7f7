#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nimble/schedule/packing.h"
#include "nimble/schedule/schedule.h"

namespace nimble {

// Which streams have the bytes of a block in their caches, as bits, by granule of the block.
struct Footprint {
  std::vector<uint64_t> first;    // who writes it first
  std::vector<uint64_t> holders;  // who has it after the block's last use
};

// Of the schedule's memory, where it lies by the offsets of a packing.
//
// To write what another core's cache has means to take it away from there. On two cores of an EPYC
// (Zen 5) that share no cache a core wrote 512 KiB at 8 GB/s if the other one had read it, at 44 if
// the other one had written it, and at 268 if nobody had; on two that share one at 46, 109 and 283.
// Caches are taken to hold all that was touched until another stream writes it.
class StreamFootprints {
 public:
  static constexpr size_t kMostStreams = 64;

  // `order` is a serial order of the schedule's tasks; blocks are by their first use in it.
  StreamFootprints(const Schedule& schedule, const std::vector<TaskId>& order,
                   const std::vector<Block>& blocks);

  const Footprint& operator[](size_t block) const { return footprints_[block]; }
  size_t granule_bytes() const { return granule_bytes_; }

  // Bytes that are taken from other streams' caches in a replay that follows another.
  size_t bytes_taken(const Packing& packing) const;

 private:
  size_t granule_bytes_;
  std::vector<Footprint> footprints_;
};

// Looks for places within `limit_bytes` where less is taken than at present: each block, by its
// first use, where least is. Tried are places where gaps begin and end, and where the parts of
// different streams lie as those of a block that was there before. The present packing if there are
// none.
Packing pack_by_stream(const std::vector<Block>& blocks, const Conflicts& conflicts,
                       const StreamFootprints& footprints, const Packing& present,
                       size_t limit_bytes);

}  // namespace nimble
