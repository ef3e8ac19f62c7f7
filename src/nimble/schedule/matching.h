#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nimble/schedule/dag.h"

namespace nimble {

inline constexpr uint32_t kUnmatched = UINT32_MAX;

// A maximum matching of the bipartite graph that has every node once on the left and once on the
// right, and an edge (left u, right v) for every edge u -> v of the DAG. Hopcroft-Karp,
// O(E sqrt V).
struct Matching {
  std::vector<uint32_t> next;      // by left node: its right partner or kUnmatched
  std::vector<uint32_t> previous;  // by right node: its left partner or kUnmatched
  size_t size = 0;
};
Matching maximum_matching(const Dag& dag);

}  // namespace nimble
