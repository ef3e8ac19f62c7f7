#include "nimble/torch/out_variant.h"

#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace nimble {
namespace {

size_t count_out_arguments(const c10::FunctionSchema& schema) {
  size_t count = 0;
  for (const c10::Argument& argument : schema.arguments()) count += argument.is_out();
  return count;
}

// Every hand-written overload with out arguments, by the op's name.
const std::multimap<std::string, c10::OperatorHandle>& out_overloads() {
  static const auto& overloads = *[] {
    auto* found = new std::multimap<std::string, c10::OperatorHandle>();
    const c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      if (name.overload_name.find("out") == std::string::npos) continue;
      const auto op = const_cast<c10::Dispatcher&>(dispatcher).findSchema(name);
      if (!op || op->hasTag(at::Tag::generated) || count_out_arguments(op->schema()) == 0) continue;
      found->emplace(name.name, *op);
    }
    return found;
  }();
  return overloads;
}

bool same_argument(const c10::Argument& a, const c10::Argument& b) {
  return a.name() == b.name() && *a.type() == *b.type();
}

bool takes_results_of(const c10::FunctionSchema& out, const c10::FunctionSchema& functional) {
  const auto& wanted = functional.arguments();
  const auto& given = out.arguments();
  if (given.size() != wanted.size() + functional.returns().size()) return false;
  if (count_out_arguments(out) != functional.returns().size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!same_argument(wanted[i], given[i])) return false;
  for (size_t i = wanted.size(); i < given.size(); ++i)
    if (!given[i].is_out()) return false;
  return true;
}

bool returns_only_tensors(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns())
    if (result.type()->kind() != c10::TensorType::Kind) return false;
  return !schema.returns().empty();
}

bool writes_an_argument(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments())
    if (argument.alias_info() && argument.alias_info()->isWrite()) return true;
  return false;
}

// Losses that give their output the shape of the input first, with a warning at every call, and
// that of their result in the end.
bool resizes_its_output(const std::string& name) {
  return name == "aten::mse_loss" || name == "aten::smooth_l1_loss" || name == "aten::huber_loss" ||
         name == "aten::soft_margin_loss";
}

std::optional<c10::OperatorHandle> find(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  if (resizes_its_output(schema.name())) return std::nullopt;
  if (!returns_only_tensors(schema) || writes_an_argument(schema)) return std::nullopt;
  const auto [begin, end] = out_overloads().equal_range(schema.name());
  for (auto candidate = begin; candidate != end; ++candidate) {
    const c10::OperatorHandle& out = candidate->second;
    if (takes_results_of(out.schema(), schema) &&
        !out.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
      return out;
  }
  return std::nullopt;
}

}  // namespace

std::optional<c10::OperatorHandle> out_variant_of(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto& cache =
      *new std::unordered_map<c10::OperatorName, std::optional<c10::OperatorHandle>>();
  std::lock_guard lock(mutex);
  auto found = cache.find(op.operator_name());
  if (found == cache.end()) found = cache.emplace(op.operator_name(), find(op)).first;
  return found->second;
}

}  // namespace nimble
