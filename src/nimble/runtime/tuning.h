#pragma once

#include <chrono>
#include <cstddef>

// Every constant of the runtime that was tuned, with the measurement behind it. All figures are
// from a virtual machine with two cores (Xeon, 2.3 GHz nominal) that other programs also used:
// read the ratios.
namespace nimble::tuning {

// What two cores must not share. Not std::hardware_destructive_interference_size: it may change
// with compiler flags, and with it the layout of our types.
inline constexpr size_t kCacheLine = 64;

// A waiting thread polls this often, then offers its core to others and reads the clock. 32 polls
// take about 1 us. The offer costs nothing if there is no one else. Without it, two workers that
// the kernel had put on the same core paid the whole spin for each wait:
//
//                                       without     32 polls    128 polls
//   wait between two cores              0.14 us      0.13 us      0.12 us
//   wait between two on one core       23    us      1.2  us      2.6  us
//   wait in a ring, 4 on two cores     12-40 us      0.7  us      1.4  us
//   call of a helper on the same core  73    us      2.4  us      5.2  us
inline constexpr int kPollsBetweenYields = 32;

// How long a worker spins for another before it sleeps: about what sleeping costs (the classical
// choice, never worse than twice the best). A wait of 40 us took 54 us with sleep and 40.2 us
// with spinning; the call of a parked helper took 20-30 us against 0.35 us for a spinning one.
inline constexpr std::chrono::nanoseconds kWaitSpin = std::chrono::microseconds(25);

// How long a helper spins for the next replay. Longer, as a caller that replays in a loop needs
// some time in between (binding inputs, Python), and short against a framework's op on all cores.
inline constexpr std::chrono::nanoseconds kIdleSpin = std::chrono::microseconds(50);

}  // namespace nimble::tuning
