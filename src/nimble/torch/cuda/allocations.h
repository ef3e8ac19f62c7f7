#pragma once

#include <cstddef>
#include <vector>

namespace nimble {

struct AllocatedBlock {
  const void* address = nullptr;
  size_t bytes = 0;
};

// Hears what this thread allocates on CUDA while it exists. One at a time on a thread.
class HeardBlocks {
 public:
  HeardBlocks();
  ~HeardBlocks();
  HeardBlocks(const HeardBlocks&) = delete;
  HeardBlocks& operator=(const HeardBlocks&) = delete;

  void clear() { blocks_.clear(); }
  void add(AllocatedBlock block) { blocks_.push_back(block); }
  const std::vector<AllocatedBlock>& blocks() const { return blocks_; }

 private:
  std::vector<AllocatedBlock> blocks_;
};

}  // namespace nimble
