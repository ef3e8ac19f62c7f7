#include "nimble/python/source_location.h"

#include <torch/csrc/utils/pybind.h>

namespace nimble {

namespace py = pybind11;
namespace {

bool is_library_frame(const std::string& file) {
  // "<…>": code that was generated, or frozen into the interpreter.
  return file.find("/torch/") != std::string::npos || file.find("/nimble/") != std::string::npos ||
         file.starts_with("<frozen");
}

}  // namespace

std::string python_source_location() {
  if (!Py_IsInitialized()) return "";
  py::gil_scoped_acquire gil;
  auto frame = py::reinterpret_borrow<py::object>(
      reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  if (frame) frame.dec_ref();  // PyThreadState_GetFrame gave us a reference of its own
  while (frame && !frame.is_none()) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    const auto file = py::cast<std::string>(code.attr("co_filename"));
    if (!is_library_frame(file)) return file + ":" + std::to_string(PyFrame_GetLineNumber(raw));
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return "";
}

}  // namespace nimble
