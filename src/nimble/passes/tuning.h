#pragma once

#include <cstddef>
#include <cstdint>

namespace nimble {

// A part of an op takes at least this long on one core: a wait between cores costs about 0.3 us and
// a cold start of a kernel some more. Medians in ms of two preparations each, all in turns, on two
// cores of an EPYC (Zen 4); the last three on two streams:
//
//                     15 us        10 us (8 us: *)   6 us (5 us: *)
//   EfficientNet-B0   6.19  5.98   5.85* 5.90*       5.98* 5.92*
//   MobileNetV2       4.10  4.05   4.02* 4.11*       4.06* 3.95*
//   DARTS             5.75  5.69   5.68  5.69        5.81  5.71
//   AmoebaNet         7.47  7.14   6.97  7.31        7.24  7.32
//   NASNet-A mobile   6.61  6.53   6.63  6.61        6.91  6.74
inline constexpr double kSmallestPartNs = 10000;

// What takes less than that, but reads and writes so much for each part, is divided all the same:
// on cores that share no cache, reading what the other one wrote takes three times as long as
// reading one's own. EfficientNet-B0 on one stream and two such cores of an EPYC (Zen 5), medians
// in ms, all in turns: 3.40 from 48 KiB on, 3.37 from 96, 3.15 from 192, 3.84 from 400, 4.12 never.
// Where the cores share a cache, all within 2 %.
inline constexpr int64_t kSmallestPartBytes = 192 << 10;

// More parts than workers let the next op begin early and even out what was misjudged; each costs
// waits. An estimate, to be measured on whole networks.
inline constexpr size_t kMostPartsPerWorker = 2;

// What was written so many bytes ago is read from memory rather than from a cache. The value
// matters little. Steps of training at batch 32 on two Zen 5 cores, ms on one stream and with
// "auto", medians of two preparations each:
//
//                     2 MiB                    24 MiB
//   MobileNetV2       9.45 8.25   9.58 8.38    9.82 8.28   9.78 8.19
//   EfficientNet-B0   15.9 12.8   15.5 12.9    15.6 12.9   15.4 13.0
inline constexpr int64_t kForgottenBytes = 8 << 20;

}  // namespace nimble
