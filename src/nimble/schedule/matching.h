#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nimble/schedule/dag.h"

namespace nimble {

inline constexpr uint32_t kUnmatched = UINT32_MAX;

// Partners in a bipartite graph that has every node once on the left and once on the right.
struct Matching {
  std::vector<uint32_t> next;      // by left node: its right partner or kUnmatched
  std::vector<uint32_t> previous;  // by right node: its left partner or kUnmatched
  size_t size = 0;
};

// A maximum matching of the bipartite graph with an edge (left u, right v) for every edge u -> v
// of the DAG. Hopcroft-Karp on rows of bits: O(sqrt V) rounds of V * V / 64 steps.
Matching maximum_matching(const Dag& dag);

// The same for an edge (left u, right v) where bit v of row u is set; for relations with too many
// pairs to list, such as the closure of a DAG.
Matching maximum_matching(const BitMatrix& pairs);

}  // namespace nimble
