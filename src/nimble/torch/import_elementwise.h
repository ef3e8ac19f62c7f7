#pragma once

#include <string>

#include "nimble/torch/call_reader.h"

namespace nimble {

// Arithmetic on elements: a framework op in its plain, in-place, out and _foreach_ forms becomes
// one chain for each tensor that it makes or changes. Numbers may be live ones: they are operands
// then. True if it wrote the op in our terms; false: leave it to the framework.
bool import_elementwise(const std::string& name, CallReader& call);

}  // namespace nimble
