#pragma once

#include <cstddef>
#include <vector>

#include "nimble/schedule/dag.h"
#include "nimble/schedule/stream_assignment.h"

namespace nimble {

// Each stream of a device has a workspace of the BLAS library, 32 MiB on some, and memory that only
// it can use again.
constexpr size_t kMostDeviceStreams = 8;

// Puts chains of an assignment together until there are at most `most` streams: each chain, by the
// time it could begin, on the stream that is idle for the shortest time until then, or else on the
// one that is idle first. `cost_ns` by node; empty: all cost the same.
StreamAssignment cap_streams(const Dag& dag, const StreamAssignment& assignment, size_t most,
                             const std::vector<double>& cost_ns = {});

}  // namespace nimble
