#include "nimble/runtime/large_pages.h"

#include <cstdlib>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "nimble/runtime/tuning.h"

namespace nimble {
namespace {

constexpr size_t kLargePage = 2 << 20;
constexpr size_t kMuch = 1 << 20;

size_t round_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

void FreePages::operator()(std::byte* memory) const {
  std::free(memory);
}

PageMemory allocate_pages(size_t bytes) {
  const bool large = bytes >= kMuch;
  const size_t page = large ? kLargePage : tuning::kCacheLine;
  const size_t size = round_up(bytes > 0 ? bytes : 1, page);
  auto* memory = static_cast<std::byte*>(size < bytes ? nullptr : std::aligned_alloc(page, size));
  if (memory == nullptr) throw OutOfMemory(bytes);
#ifdef __linux__
  if (large) madvise(memory, size, MADV_HUGEPAGE);  // a wish: without, small pages serve
#endif
  return PageMemory(memory);
}

}  // namespace nimble
