#pragma once

#include <torch/csrc/utils/pybind.h>

#include <exception>

namespace nimble {

// Our errors as nimble.NimbleError and nimble.Refused; the framework's as it translates them.
void bind_errors(pybind11::module_& module);
void translate_exception(std::exception_ptr error);

}  // namespace nimble
