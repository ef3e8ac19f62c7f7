#pragma once

#include <exception>
#include <string>
#include <vector>

namespace nimble {

// "model.py:42": where the user's program stands, if someone said how to find out.
std::string source_here();

// Why a program cannot be replayed, and where it was at that time. The recorder's callbacks cannot
// throw, so the first reason is kept until the program has ended.
class Refusal {
 public:
  void enter_module(std::string name) { modules_.push_back(std::move(name)); }
  void leave_module() {
    if (!modules_.empty()) modules_.pop_back();
  }
  std::string module() const { return modules_.empty() ? "" : modules_.back(); }

  void note(const std::string& what, const std::string& why, const std::string& where);
  // An exception in the recorder itself; must be called in its handler.
  void note_failure();
  // An op raised an error. That only matters if the program goes on all the same: then what it
  // does depends on values.
  void note_raised(const std::string& op, const std::string& where);

  void rethrow() const {
    if (reason_) std::rethrow_exception(reason_);
  }
  void rethrow_raised() const {
    if (raised_) std::rethrow_exception(raised_);
  }

 private:
  std::exception_ptr describe(const std::string& what, const std::string& why,
                              const std::string& where) const;

  std::vector<std::string> modules_;
  std::exception_ptr reason_;
  std::exception_ptr raised_;
};

}  // namespace nimble
