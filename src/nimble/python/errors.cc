#include "nimble/python/errors.h"

#include <torch/csrc/Exceptions.h>

#include <stdexcept>

#include "nimble/base/error.h"

namespace nimble {

namespace py = pybind11;
namespace {

PyObject* nimble_error = nullptr;
PyObject* refused = nullptr;

void rethrow_as_python(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (py::error_already_set& python) {
    python.restore();
  } catch (const Refused& reason) {
    PyErr_SetString(refused, reason.what());
  } catch (const UserError& mistake) {
    PyErr_SetString(nimble_error, mistake.what());
  } catch (const std::out_of_range& mistake) {
    PyErr_SetString(PyExc_IndexError, mistake.what());
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

}  // namespace

void translate_exception(std::exception_ptr error) {
  if (error) rethrow_as_python(error);
}

void bind_errors(py::module_& module) {
  nimble_error = PyErr_NewExceptionWithDoc(
      "nimble.NimbleError", "What was asked for and what came do not fit; the message says how.",
      PyExc_RuntimeError, nullptr);
  refused = PyErr_NewExceptionWithDoc(
      "nimble.Refused", "The program cannot be replayed without giving wrong results.",
      nimble_error, nullptr);
  module.attr("NimbleError") = py::reinterpret_borrow<py::object>(nimble_error);
  module.attr("Refused") = py::reinterpret_borrow<py::object>(refused);
  py::register_local_exception_translator(translate_exception);
}

}  // namespace nimble
