#include "nimble/python/module_watch.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>

namespace nimble {

namespace py = pybind11;
namespace {

py::object borrowed(PyObject* object) {
  return py::reinterpret_borrow<py::object>(object);
}

// Differs from what it was at every change of the dict. 0: this Python does not say.
uint64_t version_of(PyObject* dict) {
#if PY_VERSION_HEX < 0x030C0000
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#else
  (void)dict;
  return 0;
#endif
}

bool is_tensor_or_module(PyObject* object) {
  static auto* const module_type = reinterpret_cast<PyTypeObject*>(
      py::object(py::module_::import("torch.nn").attr("Module")).release().ptr());
  return THPVariable_Check(object) || PyType_IsSubtype(Py_TYPE(object), module_type);
}

bool same(PyObject* was, PyObject* now);

bool same_items(PyObject* was, PyObject* now) {
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(was);
  if (PySequence_Fast_GET_SIZE(now) != count) return false;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!same(PySequence_Fast_GET_ITEM(was, i), PySequence_Fast_GET_ITEM(now, i))) return false;
  return true;
}

// The same object, or an equal plain value. Runs no code of the user's.
bool same(PyObject* was, PyObject* now) {
  if (was == now) return true;
  if (Py_TYPE(was) != Py_TYPE(now)) return false;
  if (PyFloat_CheckExact(was)) {  // by bits: 0.0 is not -0.0, and nan is itself
    const double a = PyFloat_AS_DOUBLE(was);
    const double b = PyFloat_AS_DOUBLE(now);
    return std::memcmp(&a, &b, sizeof a) == 0;
  }
  if (PyLong_CheckExact(was) || PyUnicode_CheckExact(was) || PyBytes_CheckExact(was) ||
      THPDevice_Check(was))
    return PyObject_RichCompareBool(was, now, Py_EQ) == 1;
  if (PyTuple_CheckExact(was) || THPSize_Check(was) || PyList_CheckExact(was))
    return same_items(was, now);
  return false;
}

// Of a variable: rebinding it matters only if a tensor or module comes or goes.
bool same_variable(PyObject* was, PyObject* now) {
  if (was == now) return true;
  return !(was && is_tensor_or_module(was)) && !(now && is_tensor_or_module(now));
}

std::string quoted(const std::string& name, PyObject* key) {
  if (!PyUnicode_Check(key)) return "'" + name + "'";
  return "'" + name + (name.empty() ? "" : ".") + py::cast<std::string>(borrowed(key)) + "'";
}

}  // namespace

void ModuleWatch::add_dict(py::dict dict, std::string name, bool ordered, bool loose) {
  Items items;
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(dict.ptr(), &at, &key, &value);)
    if (!loose || is_tensor_or_module(value)) items.emplace_back(borrowed(key), borrowed(value));
  seen_.push_back({dict.ptr(), version_of(dict.ptr())});
  dicts_.push_back({std::move(dict), std::move(name), ordered, loose, std::move(items)});
}

void ModuleWatch::add_sequence(py::object sequence, std::string name, bool loose) {
  std::vector<py::object> items;
  for (py::handle item : py::iter(sequence))
    if (!loose || is_tensor_or_module(item.ptr())) items.push_back(borrowed(item.ptr()));
  sequences_.push_back({std::move(sequence), std::move(name), loose, std::move(items)});
}

void ModuleWatch::add_global(py::dict globals, py::str key) {
  py::object value = globals[key];
  globals_.push_back({std::move(globals), std::move(key), std::move(value)});
}

void ModuleWatch::add_cell(py::object cell, std::string name) {
  if (!PyCell_Check(cell.ptr())) throw py::type_error("not a cell");
  py::object value = borrowed(PyCell_GET(cell.ptr()));
  cells_.push_back({std::move(cell), std::move(name), std::move(value)});
}

void ModuleWatch::add_tensor(py::object tensor, std::string name) {
  if (!THPVariable_Check(tensor.ptr())) throw py::type_error("not a tensor");
  tensors_.push_back({tensor.ptr(), THPVariable_Unpack(tensor.ptr()).unsafeGetTensorImpl()});
  tensor_names_.emplace_back(std::move(tensor), std::move(name));
}

std::string ModuleWatch::first_change() {
  for (size_t i = 0; i < seen_.size(); ++i) {
    const uint64_t version = version_of(seen_[i].dict);
    if (version == seen_[i].version && version != 0) continue;
    if (std::string change = change_in(dicts_[i]); !change.empty()) return change;
    seen_[i].version = version;
  }
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (THPVariable_Unpack(tensors_[i].object).unsafeGetTensorImpl() != tensors_[i].impl)
      return "'" + tensor_names_[i].second + "'";
  for (const Sequence& watched : sequences_)
    if (std::string change = change_in(watched); !change.empty()) return change;
  for (const Global& global : globals_) {
    PyObject* now = PyDict_GetItemWithError(global.globals.ptr(), global.key.ptr());
    if (!same_variable(global.value.ptr(), now)) return quoted("", global.key.ptr());
  }
  for (const Cell& cell : cells_)
    if (!same_variable(cell.value.ptr(), PyCell_GET(cell.cell.ptr()))) return "'" + cell.name + "'";
  return "";
}

std::string ModuleWatch::change_in(const Dict& watched) {
  PyObject* dict = watched.dict.ptr();
  size_t count = 0;
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);) {
    if (watched.loose && !is_tensor_or_module(value)) continue;
    const size_t place = count++;
    if (place < watched.items.size() && same(watched.items[place].first.ptr(), key)) {
      if (!same(watched.items[place].second.ptr(), value)) return quoted(watched.name, key);
    } else if (watched.ordered) {
      return quoted(watched.name, key);
    }
  }
  for (const auto& [name, was] : watched.items) {
    PyObject* now = PyDict_GetItemWithError(dict, name.ptr());
    if (!now || !same(was.ptr(), now)) return quoted(watched.name, name.ptr());
  }
  if (count == watched.items.size()) return "";
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);) {  // one of them is new
    if (watched.loose && !is_tensor_or_module(value)) continue;
    bool known = false;
    for (const auto& item : watched.items)
      known = known || PyObject_RichCompareBool(item.first.ptr(), key, Py_EQ) == 1;
    if (!known) return quoted(watched.name, key);
  }
  return "'" + watched.name + "'";
}

std::string ModuleWatch::change_in(const Sequence& watched) {
  // The list itself; of anything else a copy.
  const auto items =
      py::reinterpret_steal<py::object>(PySequence_Fast(watched.sequence.ptr(), "not a sequence"));
  if (!items) throw py::error_already_set();
  size_t count = 0;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.ptr(), i);
    if (watched.loose && !is_tensor_or_module(item)) continue;
    if (count >= watched.items.size() || !same(watched.items[count].ptr(), item))
      return "'" + watched.name + "'";
    ++count;
  }
  return count == watched.items.size() ? "" : "'" + watched.name + "'";
}

}  // namespace nimble
