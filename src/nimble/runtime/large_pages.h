#pragma once

#include <cstddef>
#include <memory>

namespace nimble {

struct FreePages {
  void operator()(std::byte* memory) const;
};
using PageMemory = std::unique_ptr<std::byte, FreePages>;

// Memory aligned to a cache line and, if it is much, on large pages where the system gives them: a
// replay goes through all of its memory once, and with small pages waits for address translations
// and for hardware prefetchers, which stop at the end of a page. Throws std::bad_alloc.
PageMemory allocate_pages(size_t bytes);

}  // namespace nimble
