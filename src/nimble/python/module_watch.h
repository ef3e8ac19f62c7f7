#pragma once

#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace nimble {

// Notices that the Python objects a program is made of are not what they were: entries of dicts
// (attributes, parameters, hooks), items of lists, variables. An equal number is not a change.
//
// What was added as `loose` may change in everything but its tensors and modules.
//
// A look costs about a nanosecond for each dict that nobody touched. The GIL must be held.
class ModuleWatch {
 public:
  // `name` and the key of an entry make its name; "" if the entry's own is enough.
  void add_dict(pybind11::dict dict, std::string name, bool ordered, bool loose);
  // A list, or another iterable with a stable order.
  void add_sequence(pybind11::object sequence, std::string name, bool loose);
  // A global variable: only tensors and modules count.
  void add_global(pybind11::dict globals, pybind11::str key);
  // A variable of an enclosing function: only tensors and modules count.
  void add_cell(pybind11::object cell, std::string name);
  // The tensor behind the Python object; torch.utils.swap_tensors exchanges it.
  void add_tensor(pybind11::object tensor, std::string name);

  // The name of the first thing that is not what it was, or empty.
  std::string first_change();

 private:
  using Items = std::vector<std::pair<pybind11::object, pybind11::object>>;
  struct Dict {
    pybind11::dict dict;
    std::string name;
    bool ordered;
    bool loose;
    Items items;
  };
  struct Seen {  // all that a look reads of a dict that nobody touched
    PyObject* dict;
    uint64_t version;
  };
  struct Sequence {
    pybind11::object sequence;
    std::string name;
    bool loose;
    std::vector<pybind11::object> items;
  };
  struct Global {
    pybind11::dict globals;
    pybind11::str key;
    pybind11::object value;
  };
  struct Cell {
    pybind11::object cell;
    std::string name;
    pybind11::object value;
  };
  struct Tensor {
    PyObject* object;
    const c10::TensorImpl* impl;
  };

  static std::string change_in(const Dict& watched);
  static std::string change_in(const Sequence& watched);

  std::vector<Seen> seen_;  // by dict
  std::vector<Dict> dicts_;
  std::vector<Tensor> tensors_;
  std::vector<std::pair<pybind11::object, std::string>> tensor_names_;  // by tensor
  std::vector<Sequence> sequences_;
  std::vector<Global> globals_;
  std::vector<Cell> cells_;
};

}  // namespace nimble
