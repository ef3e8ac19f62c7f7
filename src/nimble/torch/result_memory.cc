#include "nimble/torch/result_memory.h"

#include <c10/core/CPUAllocator.h>

#include <utility>

namespace nimble {

ResultMemory::Block ResultMemory::take() {
  PageMemory pages;
  {
    const std::lock_guard lock(mutex_);
    pages = std::move(spare_);
  }
  if (!pages) pages = allocate_pages(bytes_);
  auto back = [home = shared_from_this()](std::byte* block) { home->give_back(PageMemory(block)); };
  return Block(pages.release(), std::move(back));
}

void ResultMemory::give_back(PageMemory block) {
  const std::lock_guard lock(mutex_);
  spare_.swap(block);
}

c10::Storage storage_in(const ResultMemory::Block& block, size_t offset, size_t bytes) {
  const auto drop = [](void* holder) { delete static_cast<ResultMemory::Block*>(holder); };
  at::DataPtr data(block.get() + offset, new ResultMemory::Block(block), drop, at::kCPU);
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, std::move(data), c10::GetCPUAllocator(), true));
}

}  // namespace nimble
