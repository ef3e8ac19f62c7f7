#include "nimble/torch/framework_task.h"

#include "nimble/base/error.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {
namespace {

constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

bool needs_dispatch(const at::Tensor& tensor) {
  return tensor.is_conj() || tensor.is_neg();
}

}  // namespace

void FrameworkTask::place(const TensorSlot& slot, at::Tensor tensor) {
  if (slot.element < 0) {
    arguments_[slot.position] = std::move(tensor);
    return;
  }
  // The recording's list is shared by all instances: this one gets its own.
  c10::List<c10::IValue> list = arguments_[slot.position].toList().copy();
  list.set(slot.element, std::move(tensor));
  arguments_[slot.position] = std::move(list);
}

void FrameworkTask::resolve_kernel() {
  bool has_tensor = false;
  bool dispatch = false;
  auto look_at = [&](const c10::IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined()) return;
    has_tensor = true;
    dispatch |= needs_dispatch(value.toTensor());
  };
  for (const c10::IValue& argument : arguments_) {
    look_at(argument);
    if (argument.isList())
      for (const c10::IValue& element : argument.toListRef()) look_at(element);
  }
  if (has_tensor && !dispatch && op_.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU))
    kernel_ = &op_.lookup(kCpu);
  stack_.reserve(std::max(arguments_.size(), op_.schema().returns().size()));
}

void FrameworkTask::run() {
  stack_.assign(arguments_.begin(), arguments_.end());
  if (kernel_)
    kernel_->callBoxed(op_, kCpu, &stack_);
  else
    op_.callBoxed(stack_);
  if (!adopted_.empty()) adopt_results();
  stack_.clear();
  for (MemorySlot* slot : releases_)
    if (slot->remaining_uses.fetch_sub(1, std::memory_order_acq_rel) == 1) slot->owner = {};
}

void FrameworkTask::adopt_results() {
  for (const Adopted& place : adopted_) {
    const c10::IValue& result = stack_[place.position];
    if (place.element < 0)
      adopt(result.toTensor(), place, op_);
    else
      adopt(result.toListRef()[place.element].toTensor(), place, op_);
  }
}

void FrameworkTask::adopt(const at::Tensor& result, const Adopted& place,
                          const c10::OperatorHandle& op) {
  at::Tensor kept = result;
  const at::Tensor& expected = place.expected;
  if (result.sizes() != expected.sizes() || result.scalar_type() != expected.scalar_type())
    throw UserError(message(c10::toString(op.operator_name()), " gave a result of shape ",
                            result.sizes(), " where ", expected.sizes(),
                            " was recorded: its shape depends on values, which a replay cannot "
                            "follow"));
  const bool same_layout = result.strides() == expected.strides() &&
                           result.storage_offset() == expected.storage_offset() &&
                           result.storage().nbytes() >= place.slot->storage.nbytes() &&
                           result.is_conj() == expected.is_conj() &&
                           result.is_neg() == expected.is_neg();
  if (!same_layout) {
    at::Tensor bytes = at::empty({static_cast<int64_t>(place.slot->storage.nbytes())},
                                 at::TensorOptions().dtype(at::kByte));
    kept = make_tensor(describe(expected), bytes.storage());
    kept.copy_(result);
  }
  place.slot->owner = kept.storage();
  place.slot->bind(kept.storage().mutable_data());
  place.slot->remaining_uses.store(place.slot->uses_per_replay, std::memory_order_relaxed);
}

bool FrameworkTask::results_kept_their_layout(const std::vector<TensorDesc>& planned) const {
  for (size_t i = 0; i < filled_.size(); ++i)
    if (filled_[i].sizes() != at::IntArrayRef(planned[i].sizes) ||
        filled_[i].strides() != at::IntArrayRef(planned[i].strides))
      return false;
  return true;
}

}  // namespace nimble
