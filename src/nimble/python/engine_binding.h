#pragma once

#include <torch/csrc/utils/pybind.h>

namespace nimble {

void bind_engine(pybind11::module_& module);

}  // namespace nimble
