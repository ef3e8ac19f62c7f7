#pragma once

#include <vector>

#include "nimble/base/op_attributes.h"

namespace nimble {

// All registers of a chain for one element, given its inputs, in plain code.
void evaluate_chain(const Chain& chain, std::vector<float>& registers);

}  // namespace nimble
