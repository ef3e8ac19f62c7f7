#include "nimble/schedule/stream_assignment.h"

#include "nimble/base/error.h"
#include "nimble/schedule/matching.h"

namespace nimble {
namespace {

// The paths that matched pairs form, by their first node.
std::vector<std::vector<uint32_t>> paths_of(const Matching& matching) {
  std::vector<std::vector<uint32_t>> paths;
  for (uint32_t first = 0; first < matching.previous.size(); ++first) {
    if (matching.previous[first] != kUnmatched) continue;
    auto& path = paths.emplace_back();
    for (uint32_t node = first; node != kUnmatched; node = matching.next[node])
      path.push_back(node);
  }
  return paths;
}

// Puts chains that follow one another on the same stream: as few streams as these chains allow.
//
// It adds no wait, and removes none: where the end of chain A reaches the start of chain B, an
// edge from A to B in the minimum equivalent graph could only join that end and that start (any
// other would be a shortcut), and a maximum matching would have matched it.
StreamAssignment merge_chains(const std::vector<std::vector<uint32_t>>& chains,
                              const Reachability& reachability) {
  BitMatrix follows(chains.size(), chains.size());
  for (size_t a = 0; a < chains.size(); ++a)
    for (size_t b = a + 1; b < chains.size(); ++b)
      if (reachability.reaches(chains[a].back(), chains[b].front())) follows.set(a, b);
  StreamAssignment assignment;
  for (const auto& group : paths_of(maximum_matching(follows))) {
    auto& stream = assignment.streams.emplace_back();
    for (uint32_t chain : group)
      stream.insert(stream.end(), chains[chain].begin(), chains[chain].end());
  }
  return assignment;
}

}  // namespace

StreamAssignment assign_unbounded_streams(const Dag& dag) {
  const Reachability reachability(dag);
  const Dag reduced = minimum_equivalent_graph(dag, reachability);
  const Matching matching = maximum_matching(reduced);
  StreamAssignment assignment = merge_chains(paths_of(matching), reachability);
  NIMBLE_ASSERT(count_waits(reduced, assignment) == reduced.edge_count() - matching.size);
  return assignment;
}

size_t count_waits(const Dag& minimum_equivalent, const StreamAssignment& assignment) {
  std::vector<size_t> stream_of(minimum_equivalent.size());
  for (size_t stream = 0; stream < assignment.streams.size(); ++stream)
    for (uint32_t node : assignment.streams[stream]) stream_of[node] = stream;
  size_t waits = 0;
  for (uint32_t from = 0; from < minimum_equivalent.size(); ++from)
    for (uint32_t to : minimum_equivalent.successors[from])
      waits += stream_of[from] != stream_of[to];
  return waits;
}

std::vector<uint32_t> execution_order(const Dag& dag, const StreamAssignment& assignment) {
  constexpr uint32_t kNothing = UINT32_MAX;
  std::vector<uint32_t> missing(dag.size(), 0);  // what a node still has to wait for
  for (const auto& targets : dag.successors)
    for (uint32_t to : targets) ++missing[to];
  std::vector<uint32_t> next_on_stream(dag.size(), kNothing);
  std::vector<bool> placed(dag.size(), false);
  size_t placed_count = 0;
  for (const auto& stream : assignment.streams) {
    for (size_t i = 0; i < stream.size(); ++i) {
      NIMBLE_ASSERT(stream[i] < dag.size() && !placed[stream[i]], "node ", stream[i]);
      placed[stream[i]] = true;
      ++placed_count;
      if (i == 0) continue;
      next_on_stream[stream[i - 1]] = stream[i];
      ++missing[stream[i]];
    }
  }
  NIMBLE_ASSERT(placed_count == dag.size(), placed_count, " of ", dag.size(), " nodes");

  std::vector<uint32_t> order;  // also the queue: what stands behind `done` is ready
  order.reserve(dag.size());
  for (uint32_t node = 0; node < dag.size(); ++node)
    if (missing[node] == 0) order.push_back(node);
  for (size_t done = 0; done < order.size(); ++done) {
    const uint32_t node = order[done];
    for (uint32_t to : dag.successors[node])
      if (--missing[to] == 0) order.push_back(to);
    const uint32_t next = next_on_stream[node];
    if (next != kNothing && --missing[next] == 0) order.push_back(next);
  }
  NIMBLE_ASSERT(order.size() == dag.size(), "the streams contradict the edges");
  return order;
}

size_t degree_of_concurrency(const Reachability& reachability, size_t size) {
  return size - maximum_matching(reachability.rows()).size;
}

}  // namespace nimble
