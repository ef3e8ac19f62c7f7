#include "nimble/kernels/panels.h"

namespace nimble {

Panels Panels::cut(int64_t columns, int64_t depth, int64_t lanes, int64_t most) {
  const int64_t vectors = std::max<int64_t>((columns + lanes - 1) / lanes, 1);
  const int64_t count = (vectors + most - 1) / most;
  return {columns, depth, lanes, (vectors + count - 1) / count};
}

PackedRange Panels::range(int64_t column_begin, int64_t column_end) const {
  const int64_t first = column_begin / width();
  const int64_t end = (column_end + width() - 1) / width();
  const int64_t end_offset = end < count() ? bias_offset(end) : packed_size();
  return {static_cast<size_t>(bias_offset(first)) * sizeof(float),
          static_cast<size_t>(end_offset) * sizeof(float)};
}

void Panels::scale_rows(const float* packed, int64_t column_begin, int64_t column_end,
                        const float* factors, int64_t factor_stride, float* to) const {
  for (int64_t panel = column_begin / width(); begin(panel) < column_end; ++panel) {
    const int64_t stride = stride_of(panel);
    const float* from = packed + bias_offset(panel);
    float* scaled = to + bias_offset(panel);
    std::copy(from, from + stride, scaled);
    for (int64_t i = 0; i < depth; ++i) {
      from += stride;
      scaled += stride;
      const float factor = factors[i * factor_stride];
      for (int64_t c = 0; c < stride; ++c) scaled[c] = from[c] * factor;
    }
  }
}

double Panels::estimate(const GemmTiles& tiles, int64_t lines, int64_t rows) const {
  constexpr double kCallCycles = 15;   // a tile's way in and out, without
  constexpr double kRowCycles = 4;     // its rows and
  constexpr double kResultCycles = 2;  // its results, by vector
  // One row has a loop of its own, that goes by the memory read; the wider the panel the better.
  if (lines * rows == 1)
    return static_cast<double>(packed_size()) / 8 * (1 + 0.1 / static_cast<double>(vectors));
  constexpr double kFirstCache = 32 << 10;
  constexpr double kSecondCacheBytes = 24;  // per cycle
  constexpr double kStreamShare = 0.05;     // of reading a panel that does not hide behind products
  double cycles = 0;
  for (int64_t panel = 0; panel < count(); ++panel) {
    const int64_t width = vectors_of(panel);
    const bool half = columns_of(panel) <= (width - 1) * lanes + tiles.half_lanes &&
                      tiles.half_lanes < tiles.lanes;
    const int64_t most = tiles.max_rows[width];
    const int64_t calls = (rows + most - 1) / most;
    for (int64_t i = 0; i < calls; ++i) {
      const int64_t height = rows / calls + (i < rows % calls ? 1 : 0);
      const double products =
          static_cast<double>(height) * (static_cast<double>(width) - (half ? 0.5 : 0)) / 2;
      const double loads = static_cast<double>(height + width) / 1.8;
      const double latency = 4;
      // The panel comes from the second-level cache if it does not fit into the first.
      const double bytes = 4 * static_cast<double>(width * lanes);
      const double stream =
          bytes * static_cast<double>(depth) > kFirstCache ? bytes / kSecondCacheBytes : 0;
      const double step = std::max({products, loads, latency, stream}) + kStreamShare * stream;
      cycles += step * static_cast<double>(depth) + kCallCycles +
                kRowCycles * static_cast<double>(height) +
                kResultCycles * static_cast<double>(height * width);
    }
  }
  // Panels that come from farther away are fetched ahead, mostly in time.
  const double bytes = 4 * static_cast<double>(packed_size());
  const double stream = bytes > (1 << 20) ? bytes / 20 : 0;
  return cycles * static_cast<double>(lines) + stream;
}

}  // namespace nimble
