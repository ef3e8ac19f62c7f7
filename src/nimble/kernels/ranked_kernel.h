#pragma once

#include <algorithm>
#include <vector>

#include "nimble/kernels/kernel.h"

namespace nimble {

// A kernel and about how long it takes: by this, candidates are chosen to be measured.
struct RankedKernel {
  double cycles = 0;
  KernelPtr kernel;
};

// The best, in order; none that is far behind.
inline std::vector<KernelPtr> take_best(std::vector<RankedKernel> ranked, size_t most) {
  constexpr double kFarBehind = 1.35;
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedKernel& a, const RankedKernel& b) {
    return a.cycles < b.cycles;
  });
  std::vector<KernelPtr> list;
  for (RankedKernel& next : ranked) {
    if (list.size() == most || next.cycles > kFarBehind * ranked[0].cycles) break;
    list.push_back(std::move(next.kernel));
  }
  return list;
}

}  // namespace nimble
