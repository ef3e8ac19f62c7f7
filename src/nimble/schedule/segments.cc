#include "nimble/schedule/segments.h"

#include <algorithm>
#include <numeric>

#include "nimble/graph/reorder_ops.h"

namespace nimble {
namespace {

// Even: captured.
std::vector<uint32_t> phases_of(const Graph& graph, const std::vector<bool>& capturable) {
  std::vector<uint32_t> phases;
  for (size_t i = 0; i < graph.ops.size(); ++i) phases.push_back(capturable[i] ? 0 : 1);
  std::vector<std::vector<uint32_t>> after(graph.ops.size());
  for (const Edge& edge : graph.edges) after[edge.before.index].push_back(edge.after.index);
  for (size_t i = 0; i < graph.ops.size(); ++i)
    for (uint32_t next : after[i]) {
      const bool alike = capturable[i] == capturable[next];
      phases[next] = std::max(phases[next], phases[i] + (alike ? 0 : 1));
    }
  return phases;
}

}  // namespace

std::vector<Segment> cut_into_segments(Graph& graph, const std::vector<bool>& capturable) {
  const std::vector<uint32_t> phases = phases_of(graph, capturable);
  std::vector<uint32_t> order(graph.ops.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return phases[a] < phases[b]; });
  reorder_ops(graph, order);
  std::vector<Segment> segments;
  for (uint32_t i = 0; i < order.size(); ++i) {
    const bool captured = phases[order[i]] % 2 == 0;
    if (segments.empty() || segments.back().captured != captured)
      segments.push_back({captured, i, i});
    segments.back().end = i + 1;
  }
  return segments;
}

std::vector<Edge> barriers_between(const Graph& graph, const std::vector<Segment>& segments) {
  std::vector<size_t> segment_of(graph.ops.size());
  for (size_t s = 0; s < segments.size(); ++s)
    for (uint32_t i = segments[s].begin; i < segments[s].end; ++i) segment_of[i] = s;
  std::vector<bool> is_first(graph.ops.size(), true);  // of its segment
  std::vector<bool> is_last(graph.ops.size(), true);
  std::vector<Edge> barriers;
  const auto add = [&](uint32_t before, uint32_t after) {
    barriers.push_back({OpId(before), OpId(after)});
  };
  for (const Edge& edge : graph.edges) {
    if (segment_of[edge.before.index] != segment_of[edge.after.index]) continue;
    is_last[edge.before.index] = is_first[edge.after.index] = false;
  }
  for (const Segment& segment : segments)
    for (uint32_t i = segment.begin; !segment.captured && i + 1 < segment.end; ++i) {
      add(i, i + 1);
      is_last[i] = is_first[i + 1] = false;
    }
  for (size_t s = 0; s + 1 < segments.size(); ++s)
    for (uint32_t a = segments[s].begin; a < segments[s].end; ++a)
      for (uint32_t b = segments[s + 1].begin; is_last[a] && b < segments[s + 1].end; ++b)
        if (is_first[b]) add(a, b);
  return barriers;
}

Schedule schedule_of(const Schedule& whole, const Segment& segment) {
  Schedule part;
  part.placements = whole.placements;
  part.tasks.assign(whole.tasks.begin() + segment.begin, whole.tasks.begin() + segment.end);
  const auto is_inside = [&](TaskId task) {
    return task.index >= segment.begin && task.index < segment.end;
  };
  std::vector<uint32_t> steps_before;  // by stream, of earlier segments
  for (const auto& steps : whole.streams)
    steps_before.push_back(static_cast<uint32_t>(
        std::find_if(steps.begin(), steps.end(), [&](const Step& s) { return is_inside(s.task); }) -
        steps.begin()));
  for (const auto& steps : whole.streams) {
    auto& kept = part.streams.emplace_back();
    for (const Step& step : steps) {
      if (!is_inside(step.task)) continue;
      kept.push_back({TaskId(step.task.index - segment.begin), {}});
      for (const Wait& wait : step.waits)
        if (is_inside(whole.streams[wait.stream.index][wait.step].task))
          kept.back().waits.push_back({wait.stream, wait.step - steps_before[wait.stream.index]});
    }
  }
  return part;
}

}  // namespace nimble
