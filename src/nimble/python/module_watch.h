#pragma once

#include <torch/csrc/utils/pybind.h>

#include <string>
#include <vector>

namespace nimble {

// Notices that a Python object tree changed: entries of dicts that must stay the same objects
// (parameters, submodules, train/eval flags). A look costs about ten nanoseconds an entry.
class ModuleWatch {
 public:
  // `what` names the entry in the error.
  void add(pybind11::dict dict, pybind11::str key, std::string what);
  // The first entry that is not what it was, or empty. The GIL must be held.
  std::string first_change() const;

 private:
  struct Entry {
    pybind11::dict dict;
    pybind11::str key;
    pybind11::object value;
    std::string what;
  };
  std::vector<Entry> entries_;
};

}  // namespace nimble
