#pragma once

#include <cstddef>

namespace nimble {

// A part of an op takes at least this long on one core: a wait between cores costs about 0.1 us and
// a cold start of a kernel some more. An estimate, to be measured on whole networks.
inline constexpr double kSmallestPartNs = 15000;

// More parts than workers let the next op begin early and even out what was misjudged; each costs
// waits. An estimate, to be measured on whole networks.
inline constexpr size_t kMostPartsPerWorker = 2;

}  // namespace nimble
