#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nimble/schedule/schedule.h"

namespace nimble {

// Bytes of the packed weights of an op that a task reads. begin = end: none.
struct WeightUse {
  uint32_t op = 0;
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const WeightUse&) const = default;
};

// What each task fetches for the tasks behind it on its stream, at most `most` bytes for each of
// them: weights are read once per replay, so they come from far away, and the plan knows in advance
// who wants them. Tasks in a row that read the same weights share the fetching.
//
//   stream:   a1  a2  b   c         a1 fetches the first half of b's weights, a2 the second,
//                                   b fetches c's
//
// By task, as `uses`.
std::vector<WeightUse> plan_fetching(const Schedule& schedule, const std::vector<WeightUse>& uses,
                                     size_t most);

}  // namespace nimble
