#include "nimble/torch/framework_task.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "nimble/base/error.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {
namespace {

constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

bool needs_dispatch(const at::Tensor& tensor) {
  return tensor.is_conj() || tensor.is_neg();
}

}  // namespace

void FrameworkTask::own(const LiveSlot& slot) {
  const bool first = std::none_of(live_.begin(), live_.end(), [&](const LiveSlot& other) {
    return other.position == slot.position;
  });
  live_.push_back(slot);
  if (first) own_live_argument(arguments_, slot);
}

void FrameworkTask::set_live(c10::ArrayRef<double> values) {
  for (const LiveSlot& slot : live_) set_live_argument(arguments_, slot, values[slot.value]);
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
  const auto& schema = op_.schema().arguments();
  for (size_t i = 0; i < schema.size() && i < arguments_.size(); ++i)
    if (arguments_[i].isList() && schema[i].type()->str().find("Tensor?") != std::string::npos)
      lists_.push_back(i);
  if (has_tensor && !dispatch && op_.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU))
    kernel_ = &op_.lookup(kCpu);
  stack_.reserve(std::max(arguments_.size(), op_.schema().returns().size()));
}

void FrameworkTask::plan_allocation(uint32_t index, MemorySlot& slot) {
  size_t at = 0;
  while (at < planned_.size() && planned_[at].index < index) ++at;
  planned_.insert(planned_.begin() + at, {index, slot.storage.nbytes(), nullptr});
  planned_slots_.insert(planned_slots_.begin() + at, &slot);
}

void FrameworkTask::run_in_grad_mode(void* task) {
  const at::AutoGradMode on(true);
  static_cast<FrameworkTask*>(task)->run();
}

void FrameworkTask::run() {
  stack_.assign(arguments_.begin(), arguments_.end());
  for (size_t i : lists_) stack_[i] = arguments_[i].toList().copy();
  if (planned_.empty())
    call();
  else
    call_with_planned_allocations();
  if (!made_.empty()) take_results();
  stack_.clear();
  for (MemorySlot* slot : releases_)
    if (slot->remaining_uses.fetch_sub(1, std::memory_order_acq_rel) == 1) slot->owner = {};
}

void FrameworkTask::call() {
  if (kernel_)
    kernel_->callBoxed(op_, kCpu, &stack_);
  else
    op_.callBoxed(stack_);
}

void FrameworkTask::call_with_planned_allocations() {
  for (size_t i = 0; i < planned_.size(); ++i) {
    MemorySlot& slot = *planned_slots_[i];
    if (slot.home && slot.owner) {  // it had to be adopted in an earlier replay
      slot.owner = {};
      slot.bind(slot.home);
    }
    planned_[i].memory = const_cast<void*>(slot.storage.data());
  }
  const PlannedAllocations in_force(planned_);
  call();
}

void FrameworkTask::take_results() {
  for (const Made& place : made_) {
    const c10::IValue& result = stack_[place.position];
    take(place.element < 0 ? result.toTensor() : result.toListRef()[place.element].toTensor(),
         place);
  }
}

void FrameworkTask::take(const at::Tensor& result, const Made& place) {
  const at::Tensor& expected = place.expected;
  MemorySlot& slot = *place.slot;
  if (result.sizes() != expected.sizes() || result.scalar_type() != expected.scalar_type())
    throw UserError(message(c10::toString(op_.operator_name()), " gave a result of shape ",
                            result.sizes(), " where ", expected.sizes(),
                            " was recorded: its shape depends on values, which a replay cannot "
                            "follow"));
  const bool same_layout = result.strides() == expected.strides() &&
                           result.storage_offset() == expected.storage_offset() &&
                           result.storage().nbytes() >= slot.storage.nbytes() &&
                           result.is_conj() == expected.is_conj() &&
                           result.is_neg() == expected.is_neg();
  if (same_layout && !planned_.empty() && result.storage().data() == slot.storage.data()) return;
  left_the_plan_ = true;
  at::Tensor kept = result;
  if (!same_layout) {
    at::Tensor bytes = at::empty({static_cast<int64_t>(slot.storage.nbytes())},
                                 at::TensorOptions().dtype(at::kByte));
    kept = make_tensor(describe(expected), bytes.storage());
    kept.copy_(result);
  }
  slot.owner = kept.storage();
  slot.bind(kept.storage().mutable_data());
  slot.remaining_uses.store(slot.uses_per_replay, std::memory_order_relaxed);
}

bool FrameworkTask::followed_the_plan(const std::vector<TensorDesc>& planned) const {
  if (!planned_.empty() && left_the_plan_) return false;
  for (size_t i = 0; i < filled_.size(); ++i)
    if (filled_[i].sizes() != at::IntArrayRef(planned[i].sizes) ||
        filled_[i].strides() != at::IntArrayRef(planned[i].strides))
      return false;
  return true;
}

}  // namespace nimble
