#pragma once

#include <string>

namespace nimble {

// "file.py:42" of the innermost Python frame that is neither the framework's nor ours; empty if
// there is none. Takes the GIL.
std::string python_source_location();

}  // namespace nimble
