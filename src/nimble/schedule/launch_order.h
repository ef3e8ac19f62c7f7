#pragma once

#include <cstdint>
#include <vector>

#include "nimble/schedule/dag.h"
#include "nimble/schedule/stream_assignment.h"

namespace nimble {

// A topological order in which to issue nodes to the streams of a device. Next is always the node
// with the longest path to the end, of those whose predecessors were issued. Of several with nearly
// as long a path: one that needs the other of arithmetic and bandwidth than the last one did, so
// that they can run beside each other; then the first by number.
//
// `computes` by node: it needs arithmetic more than bandwidth. Nodes that form a chain, as random
// ops do, stay in their order.
std::vector<uint32_t> launch_order(const Dag& dag, const std::vector<double>& cost_ns,
                                   const std::vector<bool>& computes);

// The streams of an assignment, those first on which most of a longest path runs. Their number is
// then how urgent they are.
StreamAssignment urgent_first(const Dag& dag, const std::vector<double>& cost_ns,
                              StreamAssignment assignment);

}  // namespace nimble
