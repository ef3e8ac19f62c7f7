#pragma once

#include <chrono>
#include <cstddef>

// Every constant of the runtime that was tuned, with the measurement behind it. Figures are from a
// virtual machine with two cores whose load was 3 to 6 from other programs: read the ratios, and
// measure again on a quiet machine (bench/overhead) before building on them.
namespace nimble::tuning {

// What two cores must not share. Not std::hardware_destructive_interference_size: it may change
// with compiler flags, and with it the layout of our types.
inline constexpr size_t kCacheLine = 64;

// A waiting thread polls this often, then offers its core to others and reads the clock. Without
// the offer, two workers on one core can pay the whole spin for each wait. Ranges of the medians of
// three interleaved rounds, with a wait spin of 20 us and an idle spin of 50 us. Threads were not
// pinned: a wait of 0.1 us means two cores, the larger ones are taken to mean a shared core.
//
//                                  without        32 polls       128 polls
//   wait between two workers     0.13 - 33 us   0.12 - 1.3 us   0.12 - 2.7 us
//   wait in a ring of four         12 - 24 us   0.72 - 1.3 us    1.5 - 5.5 us
//   call of a spinning helper    0.37 - 73 us   0.36 - 2.4 us   0.35 - 5.3 us
inline constexpr int kPollsBetweenYields = 32;

// How long a worker spins for another before it sleeps. Within a replay the one waited for is at
// work, so a wait is as long as the plan misjudged a task; and where cores are virtual, a thread
// that sleeps gives its core away and gets it back late. The spin yields to whoever needs the core.
// One run each on a busy host, whose load changes: MobileNetV2 6.5 ms (median), 13.8 with 25 us.
inline constexpr std::chrono::nanoseconds kWaitSpin = std::chrono::milliseconds(1);

// How long a helper spins for the next replay. Not measured against other values: a caller that
// replays in a loop needs some time in between (binding inputs, Python); short against a
// framework's op on all cores, and nobody is at work for it as in a replay.
inline constexpr std::chrono::nanoseconds kIdleSpin = std::chrono::microseconds(50);

}  // namespace nimble::tuning
