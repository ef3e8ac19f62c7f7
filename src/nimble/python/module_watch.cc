#include "nimble/python/module_watch.h"

namespace nimble {

namespace py = pybind11;

void ModuleWatch::add(py::dict dict, py::str key, std::string what) {
  PyObject* value = PyDict_GetItemWithError(dict.ptr(), key.ptr());
  if (!value) throw py::key_error(what);
  entries_.push_back({dict, key, py::reinterpret_borrow<py::object>(value), std::move(what)});
}

std::string ModuleWatch::first_change() const {
  for (const Entry& entry : entries_) {
    if (PyDict_GetItemWithError(entry.dict.ptr(), entry.key.ptr()) == entry.value.ptr()) continue;
    PyErr_Clear();
    return entry.what;
  }
  return "";
}

}  // namespace nimble
