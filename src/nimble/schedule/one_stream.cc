#include "nimble/schedule/one_stream.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "nimble/base/error.h"

namespace nimble {
namespace {

// How much longer an op may take for the sake of neighbouring parts.
constexpr double kPriceOfNeighbours = 1.03;

// Where the parts of each op begin, and the end of the last.
std::vector<uint32_t> op_begins(const Graph& graph) {
  std::vector<uint32_t> begins;
  for (uint32_t i = 0; i < graph.ops.size(); ++i) {
    const bool goes_on = i > 0 && graph.ops[i].part && graph.ops[i - 1].part &&
                         graph.ops[i].group == graph.ops[i - 1].group;
    if (!goes_on) begins.push_back(i);
  }
  begins.push_back(static_cast<uint32_t>(graph.ops.size()));
  return begins;
}

// Who runs which part of one op.
struct Division {
  std::vector<uint32_t> worker;  // by part
  double longest = 0;            // what the busiest worker takes
};

Division divide(size_t workers, const std::vector<double>& costs, auto worker_of_part) {
  Division division{std::vector<uint32_t>(costs.size()), 0};
  std::vector<double> busy(workers, 0);
  for (uint32_t part = 0; part < costs.size(); ++part) {
    const uint32_t worker = division.worker[part] = worker_of_part(part);
    division.longest = std::max(division.longest, busy[worker] += costs[part]);
  }
  return division;
}

// Each worker the parts whose middle lies in its share of the time.
Division neighbouring_parts(size_t workers, const std::vector<double>& costs) {
  const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
  const double share = total / static_cast<double>(workers);
  double before = 0;
  return divide(workers, costs, [&](uint32_t part) {
    const double middle = before + costs[part] / 2;
    before += costs[part];
    const auto worker = share > 0 ? static_cast<size_t>(middle / share) : part % workers;
    return static_cast<uint32_t>(std::min(worker, workers - 1));
  });
}

// Largest first, each to the worker that has least to do.
Division balanced_parts(size_t workers, const std::vector<double>& costs) {
  std::vector<uint32_t> largest_first(costs.size());
  std::iota(largest_first.begin(), largest_first.end(), 0);
  std::stable_sort(largest_first.begin(), largest_first.end(),
                   [&](uint32_t a, uint32_t b) { return costs[a] > costs[b]; });
  std::vector<double> busy(workers, 0);
  std::vector<uint32_t> worker(costs.size());
  for (uint32_t part : largest_first) {
    worker[part] = static_cast<uint32_t>(std::min_element(busy.begin(), busy.end()) - busy.begin());
    busy[worker[part]] += costs[part];
  }
  return divide(workers, costs, [&](uint32_t part) { return worker[part]; });
}

}  // namespace

StreamAssignment one_op_at_a_time(const Graph& graph, size_t workers,
                                  const std::vector<double>& cost_ns) {
  NIMBLE_ASSERT(workers > 0);
  NIMBLE_ASSERT(cost_ns.empty() || cost_ns.size() == graph.ops.size());
  StreamAssignment assignment;
  assignment.streams.resize(workers);
  const std::vector<uint32_t> begins = op_begins(graph);
  for (size_t op = 0; op + 1 < begins.size(); ++op) {
    std::vector<double> costs(begins[op + 1] - begins[op], 1.0);
    if (!cost_ns.empty())
      std::copy(cost_ns.begin() + begins[op], cost_ns.begin() + begins[op + 1], costs.begin());
    Division division = neighbouring_parts(workers, costs);
    if (costs.size() == 1) division.worker[0] = 0;
    Division balanced = balanced_parts(workers, costs);
    if (division.longest > balanced.longest * kPriceOfNeighbours) division = std::move(balanced);
    // In their order on every worker, so that parts that depend on each other cannot lock up.
    for (uint32_t part = 0; part < costs.size(); ++part)
      assignment.streams[division.worker[part]].push_back(begins[op] + part);
  }
  std::erase_if(assignment.streams, [](const auto& stream) { return stream.empty(); });
  return assignment;
}

std::vector<Edge> barriers_between_ops(const Graph& graph, const StreamAssignment& assignment) {
  std::vector<uint32_t> stream_of(graph.ops.size());
  for (uint32_t stream = 0; stream < assignment.streams.size(); ++stream)
    for (uint32_t node : assignment.streams[stream]) stream_of[node] = stream;
  // Of the op before, the last part on each stream that has one; of this one, the first.
  constexpr uint32_t kNone = UINT32_MAX;
  const std::vector<uint32_t> no_parts(assignment.streams.size(), kNone);
  std::vector<uint32_t> last = no_parts;
  std::vector<Edge> edges;
  const std::vector<uint32_t> begins = op_begins(graph);
  for (size_t op = 0; op + 1 < begins.size(); ++op) {
    std::vector<uint32_t> first = no_parts;
    for (uint32_t node = begins[op + 1]; node-- > begins[op];) first[stream_of[node]] = node;
    for (uint32_t before : last)
      for (uint32_t after : first)
        if (before != kNone && after != kNone && stream_of[before] != stream_of[after])
          edges.push_back({OpId(before), OpId(after)});
    last = no_parts;
    for (uint32_t node = begins[op]; node < begins[op + 1]; ++node) last[stream_of[node]] = node;
  }
  return edges;
}

BuiltSchedule build_one_stream(const Graph& graph, size_t workers,
                               const std::vector<double>& cost_ns,
                               const std::vector<bool>& unplanned_memories) {
  const StreamAssignment assignment = one_op_at_a_time(graph, workers, cost_ns);
  return build_schedule(graph, assignment, cost_ns, unplanned_memories,
                        {.extra_edges = barriers_between_ops(graph, assignment)});
}

}  // namespace nimble
