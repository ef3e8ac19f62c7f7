#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "nimble/base/ids.h"
#include "nimble/schedule/bit_matrix.h"

namespace nimble {

// A memory that wants room in the arena, and when it is in use.
struct Block {
  MemoryId memory;
  size_t bytes = 0;  // rounded up to the alignment
  size_t wanted_bytes = 0;
  uint32_t begin = UINT32_MAX;  // in serial order: from its first task
  uint32_t end = 0;             // to behind its last one; a result: behind the last of all
  bool is_result = false;

  size_t lifetime() const { return end - begin; }
};

// Which pairs of blocks must not share bytes.
using Conflicts = BitMatrix;

inline constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

struct Packing {
  std::vector<size_t> offsets;  // by block
  size_t bytes = kNowhere;
};

// A block that has its place.
struct PlacedBlock {
  size_t begin;
  size_t end;
  uint32_t block;
};

// Results lie one behind the other from the start on, and no block lies across their end.
std::vector<PlacedBlock> place_results(const std::vector<Block>& blocks);

// Looks for the places that take least room in all. `lower_bound`: it cannot take less.
Packing pack_tightly(const std::vector<Block>& blocks, const Conflicts& conflicts,
                     size_t lower_bound);

}  // namespace nimble
