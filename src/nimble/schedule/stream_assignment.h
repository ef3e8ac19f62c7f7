#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nimble/schedule/dag.h"

namespace nimble {

// Which node runs on which stream, in which order.
struct StreamAssignment {
  std::vector<std::vector<uint32_t>> streams;  // nodes in the order they run
};

// The paper's answer for a device with room for every stream: the most concurrency with the
// fewest waits.
//
//   1. Minimum equivalent graph E'.
//   2. Maximum matching M of its bipartite form; matched pairs are chains, one stream each.
//   3. A wait on every edge of E' that crosses streams: |E'| - |M|, the fewest possible.
//   4. Chains that cannot overlap (all of one before all of the other) share a stream, as long as
//      that adds no wait.
//
//      a ─┬─ b ── d        streams: a b d | c        waits: a→c, c→d
//         └─ c ───┘
StreamAssignment assign_unbounded_streams(const Dag& dag);

// How many waits an assignment needs: edges of the minimum equivalent graph that are not implied
// by stream order.
size_t count_waits(const Dag& minimum_equivalent, const StreamAssignment& assignment);

// A serial order that keeps every edge and the order within each stream. The assignment must have
// every node exactly once and must not contradict the edges.
std::vector<uint32_t> execution_order(const Dag& dag, const StreamAssignment& assignment);

// The degree of logical concurrency: the largest set of nodes no two of which are ordered
// (Dilworth: nodes minus a maximum matching of the closure).
size_t degree_of_concurrency(const Reachability& reachability, size_t size);

}  // namespace nimble
