#pragma once

#include <cstdint>
#include <vector>

namespace nimble {

// Where an element of an image is summed up; see ChainSums.
struct PlaceInBlocks {
  int64_t channel = 0;
  int64_t block = 0;
};

inline PlaceInBlocks place_in_blocks(const std::vector<int64_t>& sizes,
                                     const std::vector<int64_t>& index, int64_t blocks) {
  const size_t rank = sizes.size();
  const size_t channels = rank == 4 ? 1 : rank - 1;
  int64_t row = 0;
  int64_t rows = 1;
  for (size_t d = 0; d < rank; ++d) {
    if (d == channels || (rank == 4 && d == 3)) continue;
    row = row * sizes[d] + index[d];
    rows *= sizes[d];
  }
  PlaceInBlocks place{.channel = index[channels]};
  while ((place.block + 1) * rows / blocks <= row) ++place.block;
  return place;
}

}  // namespace nimble
