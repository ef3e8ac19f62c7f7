#pragma once

#include <c10/core/Storage.h>

#include <cstddef>
#include <memory>
#include <mutex>

#include "nimble/runtime/large_pages.h"

namespace nimble {

// Memory for the results of one replay after another, all results of a replay in one block. A block
// that nobody holds any more is used again; one at most is kept for that. Any thread may drop one,
// also when the engine is gone.
class ResultMemory : public std::enable_shared_from_this<ResultMemory> {
 public:
  using Block = std::shared_ptr<std::byte>;

  explicit ResultMemory(size_t bytes) : bytes_(bytes) {}

  Block take();

 private:
  void give_back(PageMemory block);

  const size_t bytes_;
  std::mutex mutex_;
  PageMemory spare_;
};

// A part of a block as a storage of its own, which keeps the block.
c10::Storage storage_in(const ResultMemory::Block& block, size_t offset, size_t bytes);

}  // namespace nimble
