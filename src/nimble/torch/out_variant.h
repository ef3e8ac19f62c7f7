#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace nimble {

// The overload of an op that takes the same arguments and then its results as memory to fill
// (aten::addmm -> aten::addmm.out). None if there is no such overload, or only one that the
// framework generated, which would compute elsewhere and copy.
std::optional<c10::OperatorHandle> out_variant_of(const c10::OperatorHandle& op);

}  // namespace nimble
