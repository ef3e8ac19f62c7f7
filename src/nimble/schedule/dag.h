#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "nimble/schedule/bit_matrix.h"

namespace nimble {

// A dependency graph over nodes 0..size-1 whose numbering is a topological order: every edge goes
// from a smaller to a larger node.
struct Dag {
  std::vector<std::vector<uint32_t>> successors;  // each sorted, without repeats

  explicit Dag(size_t size = 0) : successors(size) {}
  size_t size() const { return successors.size(); }
  size_t edge_count() const;
};

// Edges in any order, repeats allowed.
Dag make_dag(size_t size, const std::vector<std::pair<uint32_t, uint32_t>>& edges);
std::vector<std::vector<uint32_t>> predecessors(const Dag& dag);

// Which nodes can be reached from which, by at least one edge. One row of bits per node.
class Reachability {
 public:
  explicit Reachability(const Dag& dag);
  bool reaches(uint32_t from, uint32_t to) const { return rows_.test(from, to); }
  bool ordered(uint32_t a, uint32_t b) const { return reaches(a, b) || reaches(b, a); }
  const BitMatrix& rows() const { return rows_; }

 private:
  BitMatrix rows_;
};

// The fewest edges with the same reachability (unique for a DAG: its transitive reduction).
Dag minimum_equivalent_graph(const Dag& dag, const Reachability& reachability);

}  // namespace nimble
