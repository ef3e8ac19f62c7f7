#include "nimble/runtime/progress.h"

#include <thread>

namespace nimble {
namespace {

// Tells the core that this is a spin loop: saves power, and a hyperthread its neighbour's time.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

bool Progress::spin_for(uint32_t target, std::chrono::nanoseconds spin) const {
  using Clock = std::chrono::steady_clock;
  if (spin <= spin.zero()) return false;
  // A clock, not a count: one pause takes from 10 to 140 cycles, depending on the processor.
  const Clock::time_point deadline = Clock::now() + spin;
  do {
    for (int poll = 0; poll < tuning::kPollsBetweenYields; ++poll) {
      if (reached(counter_.load(std::memory_order_acquire), target)) return true;
      relax();
    }
    // Whoever is waited for may need this very core.
    std::this_thread::yield();
  } while (Clock::now() < deadline);
  return false;
}

void Progress::sleep_for(uint32_t target) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const uint32_t value = counter_.load(std::memory_order_seq_cst);
    if (reached(value, target)) break;
    counter_.wait(value, std::memory_order_acquire);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace nimble
