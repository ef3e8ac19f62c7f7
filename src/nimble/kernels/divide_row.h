#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace nimble {

// Cuts a row of pixels into as few tiles as possible, given their sizes, the smallest being 1.
// Returns indices of sizes.
inline std::vector<int> divide_row(int64_t width, std::span<const int> sizes) {
  std::vector<int64_t> tiles(static_cast<size_t>(width) + 1, 0);
  std::vector<int> first(static_cast<size_t>(width) + 1, 0);
  for (int64_t w = 1; w <= width; ++w) {
    tiles[w] = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] > w || tiles[w - sizes[i]] + 1 >= tiles[w]) continue;
      tiles[w] = tiles[w - sizes[i]] + 1;
      first[w] = static_cast<int>(i);
    }
  }
  std::vector<int> chosen;
  for (int64_t w = width; w > 0; w -= sizes[first[w]]) chosen.push_back(first[w]);
  return chosen;
}

}  // namespace nimble
