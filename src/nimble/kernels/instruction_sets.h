#pragma once

#include <string>
#include <vector>

namespace nimble {

// Those that the kernels were compiled for and this machine has, best first.
std::vector<std::string> instruction_sets();

}  // namespace nimble
