#include "nimble/kernels/fma_peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/fma_peak.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Independent sums, enough to hide the latency of a multiply-add. Returns operations done.
double multiply_add_many(float* sink, int64_t steps) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, sink[0]);
  const auto term = hn::Set(d, sink[1]);
  // Different ones, or the compiler computes one of them.
  const auto start = [&](int i) HWY_ATTR { return hn::Set(d, sink[2 + i]); };
  auto s0 = start(0), s1 = start(1), s2 = start(2), s3 = start(3), s4 = start(4), s5 = start(5);
  auto s6 = start(6), s7 = start(7), s8 = start(8), s9 = start(9), s10 = start(10), s11 = start(11);
  for (int64_t i = 0; i < steps; ++i) {
    s0 = hn::MulAdd(s0, factor, term);
    s1 = hn::MulAdd(s1, factor, term);
    s2 = hn::MulAdd(s2, factor, term);
    s3 = hn::MulAdd(s3, factor, term);
    s4 = hn::MulAdd(s4, factor, term);
    s5 = hn::MulAdd(s5, factor, term);
    s6 = hn::MulAdd(s6, factor, term);
    s7 = hn::MulAdd(s7, factor, term);
    s8 = hn::MulAdd(s8, factor, term);
    s9 = hn::MulAdd(s9, factor, term);
    s10 = hn::MulAdd(s10, factor, term);
    s11 = hn::MulAdd(s11, factor, term);
  }
  s0 = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(s4, s5));
  s6 = hn::Add(hn::Add(hn::Add(s6, s7), hn::Add(s8, s9)), hn::Add(s10, s11));
  sink[0] = hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s6)));
  return 2.0 * 12 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(steps);
}

}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {

HWY_EXPORT(multiply_add_many);

namespace {

constexpr int kRuns = 12;

// GFLOP/s of one run.
double run_once() {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kSteps = 200'000;
  float sink[14];
  for (int i = 0; i < 14; ++i) sink[i] = 0.5F + 0.01F * static_cast<float>(i);
  const auto begin = Clock::now();
  const double operations = HWY_DYNAMIC_DISPATCH(multiply_add_many)(sink, kSteps);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return sink[0] == 0 ? 0 : operations / seconds * 1e-9;  // never 0: the result has to be used
}

}  // namespace

double measure_fma_peak_gflops(int threads) {
  std::atomic<int> starting{threads};
  std::atomic<int> measuring{threads};
  std::vector<double> best(static_cast<size_t>(threads), 0.0);
  const auto work = [&](double& mine) {
    starting.fetch_sub(1);
    while (starting.load() > 0) std::this_thread::yield();
    for (int run = 0; run < kRuns; ++run) mine = std::max(mine, run_once());
    measuring.fetch_sub(1);
    while (measuring.load() > 0) run_once();  // none is to be measured on an idle machine
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < best.size(); ++i) others.emplace_back(work, std::ref(best[i]));
  work(best[0]);
  for (std::thread& other : others) other.join();
  return *std::min_element(best.begin(), best.end());
}

}  // namespace nimble
#endif
