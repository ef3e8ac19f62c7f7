#include "nimble/kernels/chain_blocks.h"

#include <limits>

namespace nimble {
namespace {

constexpr int64_t kBlock = 1024;         // elements; a register's block has 4 KiB
constexpr int64_t kLongestStrip = 8192;  // longer runs are not laid out per tile
constexpr int64_t kShortRun = 128;       // below it, gathering is better than a block per run

size_t as_index(int64_t value) {
  return static_cast<size_t>(value);
}

}  // namespace

ChainBlocks::ChainBlocks(const Chain& chain, LoopNest nest, std::vector<int> kept)
    : chain_(chain),
      nest_(std::move(nest)),
      kept_(std::move(kept)),
      inputs_(static_cast<size_t>(chain.inputs)),
      block_(kBlock) {
  choose_group();
  place_inputs();
  Chain needed = chain;
  needed.outputs.insert(needed.outputs.end(), kept_.begin(), kept_.end());
  for (const ChainProgramLoop& each : chain_program(needed)) add_loop(each);
  place_results();
}

// Whether what is the same in a tile's runs is laid out per tile.
bool ChainBlocks::lays_out() const {
  return !nest_.single_runs() && strip() <= kLongestStrip;
}

void ChainBlocks::choose_group() {
  const int64_t run = nest_.run();
  if (nest_.single_runs() || run >= kBlock) return;
  bool gathers = false;
  for (size_t i = 0; i < operand_count(); ++i)
    gathers |= !same_in_tile(i) && dense_runs(i) && nest_.row_stride(i) != run;
  if (!gathers || run < kShortRun) group_ = std::max<int64_t>(1, kBlock / run);
}

int64_t ChainBlocks::allocate(int64_t count) {
  const int64_t at = floats_;
  floats_ += (count + 15) / 16 * 16;
  return at;
}

void ChainBlocks::place_inputs() {
  registers_.resize(inputs_ + chain_.steps.size());
  for (size_t i = 0; i < inputs_; ++i) {
    gathers_.push_back(copy_function(gather_tile(i, group_, nest_.run()), sizeof(float)));
    Register& input = registers_[i];
    const bool uniform = nest_.run_stride(i) == 0;
    if (same_in_tile(i) && lays_out() && (uniform || group_ > 1)) {
      input.span = Span::kTile;
      input.advances = true;
      input.buffer = allocate(strip());
    } else if (uniform && group_ == 1) {
      input.span = Span::kRun;
      input.buffer = allocate(kBlock);
    } else if (dense_strips(i)) {
      input.in_place = true;
      // The same for all runs: what is made of it can be kept, too.
      if (same_in_tile(i) && lays_out()) input.span = Span::kTile;
    } else {
      input.gathered = true;
      input.buffer = allocate(kBlock);
    }
  }
}

void ChainBlocks::add_loop(const ChainProgramLoop& each) {
  Loop loop{each.loop, chain_loop_function(each.loop), reads_of(each.loop), each.result};
  bool tile = true;
  bool run = true;
  for (int value : loop.reads.registers) {
    if (value < 0) continue;
    tile &= registers_[as_index(value)].span == Span::kTile;
    run &= registers_[as_index(value)].span == Span::kRun;
  }
  Register& result = registers_[as_index(loop.result)];
  result.span = tile ? Span::kTile : run ? Span::kRun : Span::kBlock;
  result.advances = tile;
  (tile ? tile_loops_ : run ? run_loops_ : block_loops_).push_back(loop);
}

// Whether a block of an output may be written by loop `at` already: nothing may read an input
// behind it that could be in the same memory.
bool ChainBlocks::may_write_early(size_t operand, size_t at) const {
  for (size_t input = 0; input < inputs_; ++input) {
    if (!registers_[input].in_place || !nest_.same_strides(input, operand)) continue;
    for (size_t later = at + 1; later < block_loops_.size(); ++later)
      if (block_loops_[later].reads.reads(static_cast<int>(input))) return false;
    if (std::count(chain_.outputs.begin(), chain_.outputs.end(), static_cast<int>(input)) != 0)
      return false;
  }
  return true;
}

// Inputs that are outputs among others are set aside, before they may be overwritten.
void ChainBlocks::set_inputs_aside(std::vector<int>& sources) {
  for (int& source : sources) {
    if (as_index(source) >= inputs_ || !registers_[as_index(source)].in_place) continue;
    ChainLoop move;
    move.form = ChainLoop::Form::kMove;
    move.step.x = source;
    const int aside = static_cast<int>(registers_.size());
    registers_.emplace_back();
    block_loops_.insert(block_loops_.begin(),
                        {move, chain_loop_function(move), reads_of(move), aside});
    source = aside;
  }
}

void ChainBlocks::place_results() {
  std::vector<int> sources = chain_.outputs;
  sources.insert(sources.end(), kept_.begin(), kept_.end());
  if (!chain_.outputs.empty() && sources.size() > 1) set_inputs_aside(sources);
  std::copy(sources.end() - static_cast<std::ptrdiff_t>(kept_.size()), sources.end(),
            kept_.begin());
  for (size_t i = 0; i < block_loops_.size(); ++i) {
    for (size_t o = 0; o < chain_.outputs.size(); ++o) {
      if (sources[o] != block_loops_[i].result) continue;
      if (!dense_strips(inputs_ + o) || !may_write_early(inputs_ + o, i)) continue;
      registers_[as_index(sources[o])].direct_output = static_cast<int>(inputs_ + o);
      break;
    }
  }
  for (size_t o = 0; o < chain_.outputs.size(); ++o)
    if (registers_[as_index(sources[o])].direct_output != static_cast<int>(inputs_ + o))
      copies_.push_back(
          {inputs_ + o, sources[o],
           copy_function(scatter_tile(inputs_ + o, group_, nest_.run()), sizeof(float))});

  for (const Loop& loop : tile_loops_) registers_[as_index(loop.result)].buffer = allocate(strip());
  for (const Loop& loop : run_loops_) registers_[as_index(loop.result)].buffer = allocate(kBlock);
  place_block_results(sources);
  const bool in_blocks = std::any_of(registers_.begin(), registers_.end(), [](const Register& r) {
    return r.buffer >= 0 && !r.advances;
  });
  block_ = in_blocks ? kBlock : std::numeric_limits<int64_t>::max();
}

// Buffers are used again once their register has been read for the last time.
void ChainBlocks::place_block_results(const std::vector<int>& sources) {
  std::vector<int64_t> free;
  for (size_t i = 0; i < block_loops_.size(); ++i) {
    Register& result = registers_[as_index(block_loops_[i].result)];
    if (result.direct_output < 0) {
      if (free.empty()) free.push_back(allocate(kBlock));
      result.buffer = free.back();
      free.pop_back();
    }
    for (size_t earlier = 0; earlier <= i; ++earlier) {
      const int value = block_loops_[earlier].result;
      if (registers_[as_index(value)].direct_output >= 0) continue;
      if (std::count(sources.begin(), sources.end(), value) != 0) continue;
      if (last_read(value) == i) free.push_back(registers_[as_index(value)].buffer);
    }
  }
}

size_t ChainBlocks::last_read(int value) const {
  size_t last = block_loops_.size();
  for (size_t i = 0; i < block_loops_.size(); ++i)
    if (block_loops_[i].reads.reads(value)) last = i;
  return last;
}

float* ChainBlocks::element(const Block& block, size_t operand) const {
  return static_cast<float*>(block.operands[operand]) + block.tile.offsets[operand] +
         block.row * nest_.row_stride(operand) + block.column * nest_.run_stride(operand);
}

float* ChainBlocks::address(const Block& block, int value) const {
  const Register& reg = registers_[as_index(value)];
  if (reg.in_place) return element(block, as_index(value));
  if (reg.direct_output >= 0) return element(block, as_index(reg.direct_output));
  return block.scratch + reg.buffer + (reg.advances ? block.column : 0);
}

void ChainBlocks::execute(const std::vector<Loop>& loops, const Block& block) const {
  for (const Loop& each : loops) {
    const int* from = each.reads.registers;
    ChainLoopArguments arguments{};
    arguments.x = address(block, from[0]);
    if (from[1] >= 0) arguments.y = address(block, from[1]);
    if (from[2] >= 0) arguments.z = address(block, from[2]);
    arguments.out = address(block, each.result);
    arguments.count = as_index(block.count());
    each.function(each.loop, arguments);
  }
}

// Between an operand and a dense buffer.
CopyTile ChainBlocks::gather_tile(size_t operand, int64_t rows, int64_t run) const {
  return {nullptr, nullptr, rows, run, nest_.row_stride(operand), nest_.run_stride(operand),
          run,     1};
}

CopyTile ChainBlocks::scatter_tile(size_t operand, int64_t rows, int64_t run) const {
  return {
      nullptr, nullptr, rows, run, run, 1, nest_.row_stride(operand), nest_.run_stride(operand)};
}

void ChainBlocks::gather(const Block& block, size_t input) const {
  CopyTile tile = gather_tile(input, block.rows, block.run);
  tile.from = element(block, input);
  tile.to = block.scratch + registers_[input].buffer;
  gathers_[input](tile);
}

void ChainBlocks::scatter(const Block& block, const Output& output) const {
  CopyTile tile = scatter_tile(output.operand, block.rows, block.run);
  tile.from = address(block, output.source);
  tile.to = element(block, output.operand);
  if (tile.from != tile.to) output.scatter(tile);  // else an input that is the output
}

void ChainBlocks::lay_out(const Block& block, Span span) const {
  for (size_t i = 0; i < inputs_; ++i)
    if (registers_[i].span == span && !registers_[i].in_place) gather(block, i);
}

void ChainBlocks::run_block(const Block& block) const {
  for (size_t i = 0; i < inputs_; ++i)
    if (registers_[i].gathered) gather(block, i);
  execute(block_loops_, block);
  for (const Output& output : copies_) scatter(block, output);
}

}  // namespace nimble
