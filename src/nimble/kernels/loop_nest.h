#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nimble/base/tensor_desc.h"

namespace nimble {

// The loops of an op over operands of the same logical sizes, in the order in which its rows are
// counted (see row_dims), outermost first. Neighbouring dims that every operand steps through
// evenly are one loop.
//
// The two innermost loops are handed out as tiles of `rows` runs of `run` elements. A row of the op
// may be a part of a loop: of the last loop that counts rows, a range is visited.
class LoopNest {
 public:
  static constexpr size_t kMaxOperands = 16;

  struct Loop {
    int64_t size = 1;
    int64_t row_size = 1;  // the part of the size that counts rows; it varies slower
    std::array<int64_t, kMaxOperands> strides = {};
  };
  struct Tile {
    std::array<int64_t, kMaxOperands> offsets;
    int64_t rows;
    int64_t run;
  };

  // Rows are those of `operands[rows_of]`. None if there are too many operands or loops.
  static std::optional<LoopNest> make(std::span<const TensorDesc> operands, size_t rows_of);
  // Rows are N * H of images, else the indices of all dims but the last, as they are counted
  // logically; runs are the channels (dim 1 of an image, else the last one), whatever their number.
  static std::optional<LoopNest> make_by_channels(std::span<const TensorDesc> operands);

  int64_t rows() const { return rows_; }  // 0 if there are no elements
  // Whether rows cut through the innermost loop: then a tile has one run, whose length varies.
  bool cuts_runs() const { return last_row_loop_ + 1 == loops_.size(); }
  int64_t run() const { return loops_.back().size; }  // at most, if rows cut runs
  int64_t tile_rows() const {
    return single_runs() ? 1 : loops_[loops_.size() - 2].size;
  }  // at most
  int64_t run_stride(size_t operand) const { return loops_.back().strides[operand]; }
  // Whether a tile has just one run.
  bool single_runs() const { return cuts_runs() || loops_[loops_.size() - 2].size == 1; }
  // Between the runs of a tile; 0 if there is only one run.
  int64_t row_stride(size_t operand) const {
    return single_runs() ? 0 : loops_[loops_.size() - 2].strides[operand];
  }
  bool same_strides(size_t a, size_t b) const;

  template <class Visit>
  void for_each_tile(int64_t row_begin, int64_t row_end, const Visit& visit) const;

 private:
  static constexpr size_t kMaxLoops = 8;
  static std::optional<LoopNest> make(std::span<const TensorDesc> operands,
                                      const std::vector<size_t>& outer,
                                      const std::vector<size_t>& inner, bool last_alone);
  void advance(std::array<int64_t, kMaxOperands>& offsets, size_t loop, int64_t steps) const {
    for (size_t i = 0; i < operands_; ++i) offsets[i] += steps * loops_[loop].strides[i];
  }

  size_t operands_ = 0;
  std::vector<Loop> loops_;
  size_t last_row_loop_ = 0;
  int64_t rows_ = 1;
};

template <class Visit>
void LoopNest::for_each_tile(int64_t row_begin, int64_t row_end, const Visit& visit) const {
  if (row_begin >= row_end) return;
  const Loop& cut = loops_[last_row_loop_];
  const int64_t inner = cut.size / cut.row_size;
  for (int64_t row = row_begin; row < row_end;) {
    const int64_t first = row % cut.row_size;
    const int64_t count = std::min(row_end - row, cut.row_size - first);
    Tile tile{};
    int64_t outer = row / cut.row_size;
    for (size_t loop = last_row_loop_; loop-- > 0; outer /= loops_[loop].size)
      advance(tile.offsets, loop, outer % loops_[loop].size);
    advance(tile.offsets, last_row_loop_, first * inner);
    row += count;

    if (cuts_runs()) {
      tile.rows = 1;
      tile.run = count * inner;
      visit(tile);
      continue;
    }
    // The loops from the cut one to the one before the tile's.
    const size_t tile_loop = loops_.size() - 2;
    std::array<int64_t, kMaxLoops> index = {};
    const auto size = [&](size_t loop) {
      return loop == last_row_loop_ ? count * inner : loops_[loop].size;
    };
    tile.rows = size(tile_loop);
    tile.run = loops_.back().size;
    while (true) {
      visit(tile);
      size_t loop = tile_loop;
      while (loop-- > last_row_loop_) {
        advance(tile.offsets, loop, 1);
        if (++index[loop] < size(loop)) break;
        advance(tile.offsets, loop, -index[loop]);
        index[loop] = 0;
      }
      if (loop + 1 == last_row_loop_) break;  // all of them are through
    }
  }
}

}  // namespace nimble
