#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace nimble {

// What the user can cause and can fix: a wrong input, a changed model.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The program cannot be replayed without giving wrong results; the message names the op and line.
class Refused : public UserError {
 public:
  using UserError::UserError;
};

// A bug of ours.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Builds a message from its parts: `message("expected ", n, " inputs")`.
template <class... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace nimble

// An invariant of ours. Not for what a user can cause.
#define NIMBLE_ASSERT(condition, ...)                                                  \
  do {                                                                                 \
    if (!(condition)) [[unlikely]]                                                     \
      throw ::nimble::InternalError(::nimble::message(                                 \
          __FILE__, ":", __LINE__, ": ", #condition __VA_OPT__(, " ", ) __VA_ARGS__)); \
  } while (false)
