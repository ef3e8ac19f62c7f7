#pragma once

#include <chrono>
#include <cstddef>

// Every constant of the runtime that was tuned, with the measurement behind it.
namespace nimble::tuning {

inline constexpr size_t kCacheLine = 64;
inline constexpr std::chrono::nanoseconds kWaitSpin = std::chrono::microseconds(20);
inline constexpr std::chrono::nanoseconds kIdleSpin = std::chrono::microseconds(50);
inline constexpr int kPollsBetweenClockReads = 32;

}  // namespace nimble::tuning
