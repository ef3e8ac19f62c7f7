#include "nimble/torch/live_numbers.h"

#include <bit>
#include <cstring>

#include "nimble/base/error.h"

namespace nimble {
namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

const LiveSlot* live_at(const RecordedCall& call, size_t position, int32_t element) {
  for (const LiveSlot& slot : call.live)
    if (slot.position == position && slot.element == element) return &slot;
  return nullptr;
}

// Two recordings of one program, compared call by call.
class Comparison {
 public:
  Comparison(const Recording& a, const Recording& b, const std::vector<double>& values)
      : a_(a), b_(b), values_(values) {}

  std::string run() const {
    if (a_.calls.size() != b_.calls.size()) return "it makes other calls";
    for (size_t i = 0; i < a_.calls.size(); ++i)
      if (!same_call(i)) return message(a_.trace.calls[i].op, " (", a_.trace.calls[i].source, ")");
    return "";
  }

 private:
  bool same_call(size_t index) const {
    const RecordedCall& a = a_.calls[index];
    const RecordedCall& b = b_.calls[index];
    if (a.op.operator_name() != b.op.operator_name() || a.tensors.size() != b.tensors.size())
      return false;
    for (size_t i = 0; i < a.arguments.size(); ++i)
      if (!same_argument(a, i, a.arguments[i], b.arguments[i])) return false;
    for (size_t i = 0; i < a.tensors.size(); ++i)
      if (!same_constant(a, a.tensors[i], b.tensors[i])) return false;
    return true;
  }

  bool same_argument(const RecordedCall& call, size_t position, const c10::IValue& a,
                     const c10::IValue& b) const {
    if (!a.isList() || !b.isList()) return same_number(live_at(call, position, -1), a, b);
    const auto& x = a.toListRef();
    const auto& y = b.toListRef();
    if (x.size() != y.size()) return false;
    for (size_t e = 0; e < x.size(); ++e)
      if (!same_number(live_at(call, position, static_cast<int32_t>(e)), x[e], y[e])) return false;
    return true;
  }

  bool same_number(const LiveSlot* live, const c10::IValue& a, const c10::IValue& b) const {
    if (a.isTensor() || b.isTensor()) return a.isTensor() && b.isTensor();
    if (a.tagKind() != b.tagKind()) return false;
    if (live) return b.isDouble() && same_bits(b.toDouble(), values_[live->value]);
    if (a.isDouble()) return same_bits(a.toDouble(), b.toDouble());
    if (a.isInt()) return a.toInt() == b.toInt();
    if (a.isBool()) return a.toBool() == b.toBool();
    return true;
  }

  bool same_constant(const RecordedCall& call, const TensorSlot& a, const TensorSlot& b) const {
    const size_t first = a_.trace.views[a.view.index].buffer.index;
    const size_t second = b_.trace.views[b.view.index].buffer.index;
    if (a_.trace.buffers[first].role != b_.trace.buffers[second].role) return false;
    if (a_.trace.buffers[first].role != Role::kConstant) return true;
    const c10::Storage& x = a_.storages[first];
    const c10::Storage& y = b_.storages[second];
    if (x.nbytes() != y.nbytes()) return false;
    if (const LiveSlot* live = live_at(call, a.position, a.element))
      return y.nbytes() == sizeof(double) &&
             std::memcmp(y.data(), &values_[live->value], sizeof(double)) == 0;
    return x.nbytes() == 0 || std::memcmp(x.data(), y.data(), x.nbytes()) == 0;
  }

  const Recording& a_;
  const Recording& b_;
  const std::vector<double>& values_;
};

}  // namespace

std::optional<double> wrapped_number(const at::Tensor& tensor) {
  if (!tensor.unsafeGetTensorImpl()->is_wrapped_number() || tensor.scalar_type() != at::kDouble)
    return std::nullopt;
  return *static_cast<const double*>(tensor.const_data_ptr());
}

double peek(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::DisableRecordFunctionGuard unseen;
  return tensor.item<double>();
}

void LiveNumbers::announce(std::vector<LiveArgument> arguments) {
  announced_ = std::move(arguments);
  for (const LiveArgument& argument : announced_)
    for (size_t i = 0; i < argument.numbers.size(); ++i) {
      if (argument.values[i] < 0) continue;
      const auto value = static_cast<size_t>(argument.values[i]);
      if (values_.size() <= value) values_.resize(value + 1);
      values_[value] = argument.numbers[i];
    }
}

std::optional<uint32_t> LiveNumbers::live_value_of(double number) const {
  for (const LiveArgument& argument : announced_)
    if (!argument.is_list && same_bits(argument.numbers[0], number))
      return static_cast<uint32_t>(argument.values[0]);
  return std::nullopt;
}

std::vector<LiveSlot> LiveNumbers::find_in(c10::ArrayRef<const c10::IValue> arguments) const {
  std::vector<LiveSlot> found;
  if (announced_.empty()) return found;
  for (uint32_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    std::optional<double> number;
    if (argument.isDouble()) number = argument.toDouble();
    if (argument.isTensor() && argument.toTensor().defined())
      number = wrapped_number(argument.toTensor());
    if (number)
      if (const auto value = live_value_of(*number)) found.push_back({i, -1, *value});
    if (!argument.isList()) continue;
    const auto& elements = argument.toListRef();
    for (const LiveArgument& list : announced_) {
      if (!list.is_list || list.numbers.size() != elements.size()) continue;
      bool same = true;
      for (size_t e = 0; e < elements.size() && same; ++e)
        same = elements[e].isDouble() && same_bits(elements[e].toDouble(), list.numbers[e]);
      if (!same) continue;
      for (size_t e = 0; e < elements.size(); ++e)
        if (list.values[e] >= 0)
          found.push_back({i, static_cast<int32_t>(e), static_cast<uint32_t>(list.values[e])});
      break;
    }
  }
  return found;
}

std::string how_numbers_differ(const Recording& recording, const Recording& again,
                               const std::vector<double>& values) {
  return Comparison(recording, again, values).run();
}

}  // namespace nimble
