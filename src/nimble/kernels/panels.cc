#include "nimble/kernels/panels.h"

namespace nimble {

Panels Panels::cut(int64_t columns, int64_t depth, int64_t lanes, int64_t most) {
  const int64_t vectors = std::max<int64_t>((columns + lanes - 1) / lanes, 1);
  const int64_t count = (vectors + most - 1) / most;
  return {columns, depth, lanes, (vectors + count - 1) / count};
}

double Panels::estimate(const GemmTiles& tiles, int64_t lines, int64_t rows) const {
  constexpr double kCallCycles = 25;   // a tile's way in and out, without its results
  constexpr double kResultCycles = 2;  // of one vector
  double cycles = 0;
  for (int64_t panel = 0; panel < count(); ++panel) {
    const int64_t width = vectors_of(panel);
    const int64_t most = tiles.max_rows[width];
    const int64_t calls = (rows + most - 1) / most;
    for (int64_t i = 0; i < calls; ++i) {
      const int64_t height = rows / calls + (i < rows % calls ? 1 : 0);
      const double products = static_cast<double>(height * width) / 2;
      const double loads = static_cast<double>(height + width) / 2;
      const double latency = 4;
      // The panel comes from the second-level cache if it does not fit into the first.
      const double stream = depth * width * lanes > 8192 ? static_cast<double>(width) * 1.6 : 0;
      const double step = std::max({products, loads, latency, stream});
      cycles += step * static_cast<double>(depth) + kCallCycles +
                kResultCycles * static_cast<double>(height * width);
    }
  }
  return cycles * static_cast<double>(lines);
}

}  // namespace nimble
