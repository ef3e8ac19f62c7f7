#pragma once

#include <algorithm>
#include <vector>

#include "nimble/kernels/chain_program.h"
#include "nimble/kernels/copy_tiles.h"
#include "nimble/kernels/loop_nest.h"

// A chain is interpreted, one loop over a dense block of elements at a time:
//
//   tile    runs of elements, rows_ apart (see LoopNest)
//   strip   `group_` whole runs, one behind the other; what is the same in all runs of a tile (a
//           vector of channels beside an image) is laid out once per tile, as long as a strip, and
//           so are the results of loops that read nothing else (a gate's sigmoid)
//   block   a piece of a strip that stays in the first-level cache
//
// Operands that lie dense in a block are used where they are; others are gathered and scattered.
// A block's inputs are read before its outputs are written, so that these may be the same memory.
namespace nimble {

class ChainBlocks {
 public:
  // Where a block is: `rows` runs of `run` elements.
  struct Block {
    const LoopNest::Tile& tile;
    void* const* operands;
    float* scratch;
    int64_t row;
    int64_t column;  // in the run, and in the strip
    int64_t rows;
    int64_t run;
    int64_t count() const { return rows * run; }
  };

  // `kept`: registers that are looked at behind each block.
  ChainBlocks(const Chain& chain, LoopNest nest, std::vector<int> kept = {});

  const LoopNest& nest() const { return nest_; }
  bool has_strips() const { return group_ > 1; }
  size_t scratch_bytes() const { return static_cast<size_t>(floats_) * sizeof(float); }

  // The rows [begin, end), calling after(block) behind each block.
  template <class After>
  void run(void* const* operands, std::byte* scratch, int64_t begin, int64_t end,
           const After& after) const {
    nest_.for_each_tile(begin, end, [&](const LoopNest::Tile& tile) {
      run_tile(operands, reinterpret_cast<float*>(scratch), tile, after);
    });
  }
  // A kept register's elements of the block, without gaps.
  const float* kept(const Block& block, size_t index) const { return address(block, kept_[index]); }

 private:
  // How long a register's contents are valid.
  enum class Span { kBlock, kRun, kTile };
  struct Register {
    bool in_place = false;  // an input, where it lies
    bool gathered = false;  // an input that is copied for each block
    Span span = Span::kBlock;
    bool advances = false;   // the buffer is as long as a strip
    int64_t buffer = -1;     // offset in scratch
    int direct_output = -1;  // operand that holds the register instead of a buffer
  };
  struct Loop {
    ChainLoop loop;
    ChainLoopFunction function;
    ChainReads reads;
    int result;
  };
  struct Output {
    size_t operand;
    int source;  // register
    CopyFunction scatter;
  };

  bool dense_runs(size_t operand) const { return nest_.run_stride(operand) == 1; }
  bool dense_strips(size_t operand) const {
    return dense_runs(operand) && (group_ == 1 || nest_.row_stride(operand) == nest_.run());
  }
  bool same_in_tile(size_t operand) const { return nest_.row_stride(operand) == 0; }
  size_t operand_count() const { return inputs_ + chain_.outputs.size(); }
  int64_t strip() const { return group_ * nest_.run(); }
  bool lays_out() const;

  void choose_group();
  int64_t allocate(int64_t count);
  void place_inputs();
  void add_loop(const ChainProgramLoop& each);
  bool may_write_early(size_t operand, size_t at) const;
  void set_inputs_aside(std::vector<int>& sources);
  void place_results();
  void place_block_results(const std::vector<int>& sources);
  size_t last_read(int value) const;

  float* element(const Block& block, size_t operand) const;
  float* address(const Block& block, int value) const;
  void execute(const std::vector<Loop>& loops, const Block& block) const;
  CopyTile gather_tile(size_t operand, int64_t rows, int64_t run) const;
  CopyTile scatter_tile(size_t operand, int64_t rows, int64_t run) const;
  void gather(const Block& block, size_t input) const;
  void scatter(const Block& block, const Output& output) const;
  void lay_out(const Block& block, Span span) const;
  void run_block(const Block& block) const;

  template <class After>
  void run_tile(void* const* operands, float* scratch, const LoopNest::Tile& tile,
                const After& after) const {
    Block block{tile, operands, scratch, 0, 0, std::min(group_, tile.rows), tile.run};
    lay_out(block, Span::kTile);
    execute(tile_loops_, block);
    for (int64_t row = 0; row < tile.rows; row += group_) {
      block.row = row;
      block.rows = std::min(group_, tile.rows - row);
      block.column = 0;
      block.run = std::min(block_, tile.run);
      lay_out(block, Span::kRun);
      execute(run_loops_, block);
      for (; block.column < tile.run; block.column += block.run) {
        block.run = std::min(block_, tile.run - block.column);
        run_block(block);
        after(block);
      }
    }
  }

  Chain chain_;
  LoopNest nest_;
  std::vector<int> kept_;
  size_t inputs_;
  int64_t group_ = 1;
  int64_t block_;
  int64_t floats_ = 0;  // of scratch
  std::vector<Register> registers_;
  std::vector<CopyFunction> gathers_;  // by input
  std::vector<Loop> tile_loops_;
  std::vector<Loop> run_loops_;
  std::vector<Loop> block_loops_;
  std::vector<Output> copies_;
};

}  // namespace nimble
