#pragma once

#include <cstdint>
#include <vector>

#include "nimble/graph/graph.h"
#include "nimble/schedule/schedule.h"

namespace nimble {

// A program of which some ops cannot be part of a captured graph, in pieces that run one after
// another: graphs, and between them those ops, one by one.
struct Segment {
  bool captured = true;
  uint32_t begin = 0;  // its ops
  uint32_t end = 0;
};

// Sorts the graph's ops so that each segment is a range of them, in as few segments as their
// dependencies allow. `capturable` by op, as they are before.
std::vector<Segment> cut_into_segments(Graph& graph, const std::vector<bool>& capturable);

// What makes segments run one after another, and ops of a segment that is not captured one by one.
std::vector<Edge> barriers_between(const Graph& graph, const std::vector<Segment>& segments);

// The part of a schedule with those barriers that runs a segment, as a schedule of its own: task i
// of it is task segment.begin + i.
Schedule schedule_of(const Schedule& whole, const Segment& segment);

}  // namespace nimble
