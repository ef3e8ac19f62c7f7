#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nimble/schedule/dag.h"

// What the schedulers for a fixed number of workers think in.
namespace nimble {

// Nodes and what they cost. Built once, and not changed by the search for a plan.
struct BoundedProblem {
  BoundedProblem(const Dag& dag, std::vector<double> cost_ns, double wait_ns, size_t workers);

  std::vector<std::vector<uint32_t>> sources;  // predecessors by node
  std::vector<std::vector<uint32_t>> successors;
  std::vector<double> cost;
  std::vector<double> longest_path;  // by node: from its start to the end, if only edges counted
  double wait = 0;
  uint32_t workers = 1;

  size_t size() const { return cost.size(); }
  double total_cost() const;
  // No plan takes less: max(critical path, total / workers).
  double lower_bound() const;
};

// Who runs what, and when relative to the others. Workers cannot deadlock: each runs its nodes in
// the order of one common list, which keeps every edge.
struct BoundedPlan {
  std::vector<uint32_t> order;   // all nodes
  std::vector<uint32_t> worker;  // by node
};

struct BoundedTimes {
  static constexpr uint32_t kNothing = UINT32_MAX;

  std::vector<double> start;    // by node
  std::vector<double> finish;   // by node
  std::vector<uint32_t> cause;  // by node: the one whose end let it start; none at time zero
  double makespan = 0;
  size_t crossings = 0;  // edges between workers
};

// When nodes are expected to run.
struct ExpectedTimes {
  std::vector<uint32_t> order;  // all nodes; keeps every edge and the order of every stream
  std::vector<double> start;    // by node
  std::vector<double> finish;   // by node
};

void simulate(const BoundedProblem& problem, const BoundedPlan& plan, BoundedTimes& times);

// Which memories each node uses. A memory is taken from the start of its first user to the end of
// its last one.
struct MemoryUses {
  std::vector<std::vector<uint32_t>> memories;  // by node, each once
  std::vector<size_t> bytes;                    // by memory

  bool empty() const { return memories.empty(); }
};

// The most bytes taken at once if nodes run at these times.
size_t most_bytes_taken(const MemoryUses& uses, const BoundedTimes& times);
// If they run one after another.
size_t most_bytes_taken_serially(const MemoryUses& uses);

}  // namespace nimble
