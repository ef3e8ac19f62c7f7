#include "nimble/python/source_location.h"

#include <torch/csrc/utils/pybind.h>

namespace nimble {

namespace py = pybind11;
namespace {

std::string folder_of(const char* package) {
  const auto file = py::cast<std::string>(py::module_::import(package).attr("__file__"));
  return file.substr(0, file.rfind('/') + 1);
}

bool is_library_frame(const std::string& file) {
  static const std::string torch = folder_of("torch");
  static const std::string nimble = folder_of("nimble");
  // "<…>": code that was generated, or frozen into the interpreter.
  return file.starts_with(torch) || file.starts_with(nimble) || file.starts_with("<");
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
    auto code =
        py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    const auto file = py::cast<std::string>(code.attr("co_filename"));
    if (!is_library_frame(file)) return file + ":" + std::to_string(PyFrame_GetLineNumber(raw));
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return "";
}

}  // namespace nimble
