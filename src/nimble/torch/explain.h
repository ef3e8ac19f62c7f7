#pragma once

#include <string>

#include "nimble/torch/engine.h"

namespace nimble {

// What is replayed by which kernel, on which stream, and what was measured: a table for people.
std::string explain(const Engine& engine);

}  // namespace nimble
