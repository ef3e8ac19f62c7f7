#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <string>

namespace nimble {

class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(size_t bytes)
      : text_("cannot allocate " + std::to_string(bytes) +
              " bytes for a plan's memory; free some, or use a smaller batch") {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

struct FreePages {
  void operator()(std::byte* memory) const;
};
using PageMemory = std::unique_ptr<std::byte, FreePages>;

// Memory aligned to a cache line and, if it is much, on large pages where the system gives them: a
// replay goes through all of its memory once, and with small pages waits for address translations
// and for hardware prefetchers, which stop at the end of a page. Throws OutOfMemory.
PageMemory allocate_pages(size_t bytes);

}  // namespace nimble
