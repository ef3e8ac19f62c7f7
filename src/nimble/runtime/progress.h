#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "nimble/runtime/tuning.h"

namespace nimble {

// A counter that one thread advances and others wait for, alone on its cache line.
//
//   publisher: store counter ; read sleepers          One of the two sees the other, as all four
//   sleeper:   announce itself ; read counter, sleep   are sequentially consistent.
//
// So a publisher enters the kernel only if somebody sleeps. The counter grows for ever and wraps:
// a target counts as reached if it lies less than 2^31 behind.
class alignas(tuning::kCacheLine) Progress {
 public:
  explicit Progress(uint32_t start = 0) : counter_(start) {}

  // Everything this thread did before is seen by whoever waits for `value`.
  void publish(uint32_t value) {
    counter_.store(value, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      counter_.notify_all();
  }

  // Spins for at most about `spin`, so as not to hold a core that others need, then sleeps.
  void wait_for(uint32_t target, std::chrono::nanoseconds spin) {
    if (reached(counter_.load(std::memory_order_acquire), target)) return;
    if (!spin_for(target, spin)) sleep_for(target);
  }

 private:
  static bool reached(uint32_t value, uint32_t target) {
    return static_cast<int32_t>(value - target) >= 0;
  }
  bool spin_for(uint32_t target, std::chrono::nanoseconds spin) const;
  void sleep_for(uint32_t target);

  std::atomic<uint32_t> counter_;
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace nimble
