#include "nimble/torch/refusal.h"

#include "nimble/base/error.h"
#include "nimble/torch/recording.h"

namespace nimble {
namespace {

std::string (*source_locator)() = nullptr;

}  // namespace

void set_source_locator(std::string (*locate)()) {
  source_locator = locate;
}

std::string source_here() {
  return source_locator ? source_locator() : "";
}

std::exception_ptr Refusal::describe(const std::string& what, const std::string& why,
                                     const std::string& where) const {
  std::string text = "cannot replay " + what;
  if (!where.empty()) text += " at " + where;
  if (!module().empty()) text += " (module " + module() + ")";
  return std::make_exception_ptr(Refused(text + ": " + why));
}

void Refusal::note(const std::string& what, const std::string& why, const std::string& where) {
  if (!reason_) reason_ = describe(what, why, where);
}

void Refusal::note_failure() {
  if (!reason_) reason_ = std::current_exception();
}

void Refusal::note_raised(const std::string& op, const std::string& where) {
  if (!raised_)
    raised_ = describe(op, "it raised an error, and whether it does can depend on values", where);
}

}  // namespace nimble
