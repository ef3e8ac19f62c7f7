#include "nimble/runtime/large_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>

namespace nimble {
namespace {

TEST(LargePages, MemoryOfAnySizeIsAlignedAndWritable) {
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{1} << 20, (size_t{5} << 20) + 3}) {
    const PageMemory memory = allocate_pages(bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % 64, 0U);
    std::memset(memory.get(), 1, bytes);
  }
}

// A sanitizer's allocator ends the program instead.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(LargePages, TooMuchIsAnError) {
  constexpr size_t kMost = std::numeric_limits<size_t>::max();
  EXPECT_THROW(allocate_pages(kMost), OutOfMemory);
  EXPECT_THROW(allocate_pages(kMost / 4), OutOfMemory);
}
#endif

}  // namespace
}  // namespace nimble
