#pragma once

#include <cstddef>

namespace nimble {

// Bytes that a process can still have without others being killed for them, as the system sees it.
// No limit where it does not say.
size_t available_memory();

}  // namespace nimble
