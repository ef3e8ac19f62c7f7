#include "nimble/torch/call_reader.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "nimble/base/error.h"

namespace nimble {
namespace {

bool is_float32(const TensorDesc& desc) {
  return desc.dtype.code == static_cast<int8_t>(at::kFloat) && !desc.conjugate && !desc.negative;
}

}  // namespace

CallReader::CallReader(const Recording& recording, const Op& recorded, const Graph& recorded_graph,
                       Graph& imported, std::vector<MemoryId>& memory_of_value,
                       const std::vector<bool>& value_is_needed, MemoryId& live_memory)
    : recording_(recording),
      recorded_(recorded),
      call_(recording.calls[recorded.call.index]),
      recorded_graph_(recorded_graph),
      imported_(imported),
      memory_of_value_(memory_of_value),
      value_is_needed_(value_is_needed),
      live_memory_(live_memory) {}

const TensorSlot* CallReader::slot(size_t position, int32_t element) const {
  for (const TensorSlot& slot : call_.tensors)
    if (slot.position == position && slot.element == element) return &slot;
  return nullptr;
}

const Operand* CallReader::operand(ViewId view, bool written) const {
  for (const Operand& operand : recorded_.operands)
    if (operand.view == view && (written ? operand.writes : operand.reads)) return &operand;
  return nullptr;
}

bool CallReader::is_tensor(size_t position) const {
  return slot(position) != nullptr;
}

bool CallReader::has(size_t position) const {
  if (is_tensor(position)) return true;
  if (position >= call_.arguments.size()) return false;
  const c10::IValue& value = call_.arguments[position];
  return !value.isNone() && !value.isTensor();  // an undefined tensor is none
}

std::optional<TensorRef> CallReader::read(const TensorSlot& slot) const {
  const Operand* operand = this->operand(slot.view, false);
  if (!operand) return std::nullopt;
  return TensorRef{memory_of_value_[operand->before.index],
                   recorded_graph_.views[slot.view.index].desc};
}

std::optional<TensorRef> CallReader::tensor_of_any_type(size_t position) const {
  const TensorSlot* slot = this->slot(position);
  return slot ? read(*slot) : std::nullopt;
}

std::optional<TensorRef> CallReader::tensor(size_t position) const {
  std::optional<TensorRef> tensor = tensor_of_any_type(position);
  if (tensor && !is_float32(tensor->desc)) return std::nullopt;
  return tensor;
}

std::vector<TensorRef> CallReader::tensors(size_t position) const {
  std::vector<TensorRef> found;
  for (int32_t i = 0;; ++i) {
    const TensorSlot* slot = this->slot(position, i);
    if (!slot) return found;
    const std::optional<TensorRef> tensor = read(*slot);
    if (!tensor || !is_float32(tensor->desc)) return {};
    found.push_back(*tensor);
  }
}

std::optional<double> CallReader::number(size_t position) const {
  return number_of(position, -1);
}

const TensorSlot* CallReader::slot_of(size_t position, int32_t element) const {
  const TensorSlot* in_list = element < 0 ? nullptr : slot(position, element);
  return in_list ? in_list : slot(position);
}

size_t CallReader::elements() const {
  size_t count = 0;
  while (slot(0, static_cast<int32_t>(count))) ++count;
  return count;
}

std::optional<TensorRef> CallReader::tensor_of(size_t position, int32_t element) const {
  const TensorSlot* slot = slot_of(position, element);
  std::optional<TensorRef> tensor = slot ? read(*slot) : std::nullopt;
  if (tensor && !is_float32(tensor->desc)) return std::nullopt;
  return tensor;
}

const LiveSlot* CallReader::live_slot(size_t position, int32_t element) const {
  for (const LiveSlot& slot : call_.live)
    if (slot.position == position && (slot.element == element || slot.element == -1)) return &slot;
  return nullptr;
}

std::optional<TensorRef> CallReader::live_of(size_t position, int32_t element) {
  const LiveSlot* slot = live_slot(position, element);
  if (!slot) return std::nullopt;
  const DType dtype{.code = static_cast<int8_t>(at::kFloat), .bytes = 4, .name = "float32"};
  if (!live_memory_.valid())
    live_memory_ = add_memory(
        imported_, static_cast<int64_t>(recording_.live_values.size()) * dtype.bytes, Role::kLive);
  TensorDesc desc = row_major(dtype, {});
  desc.offset = slot->value;
  return TensorRef{live_memory_, desc};
}

size_t CallReader::live_numbers_of(int32_t element) const {
  return static_cast<size_t>(std::count_if(
      call_.live.begin(), call_.live.end(),
      [&](const LiveSlot& slot) { return slot.element == element || slot.element == -1; }));
}

std::optional<double> CallReader::number_of(size_t position, int32_t element) const {
  NIMBLE_ASSERT(!live_slot(position, element), recorded_.name);
  if (const TensorSlot* slot = slot_of(position, element)) {
    const View& view = recorded_graph_.views[slot->view.index];
    const Buffer& buffer = recording_.trace.buffers[view.buffer.index];
    if (!view.desc.wrapped_number || buffer.role != Role::kConstant) return std::nullopt;
    const auto* memory = static_cast<const char*>(recording_.storages[view.buffer.index].data()) +
                         view.desc.begin_byte();
    if (view.desc.dtype.code == static_cast<int8_t>(at::kDouble)) {
      double value;
      std::memcpy(&value, memory, sizeof value);
      return value;
    }
    if (view.desc.dtype.code == static_cast<int8_t>(at::kLong)) {
      int64_t value;
      std::memcpy(&value, memory, sizeof value);
      return static_cast<double>(value);
    }
    return std::nullopt;
  }
  if (position >= call_.arguments.size()) return std::nullopt;
  const c10::IValue& argument = call_.arguments[position];
  const bool in_list = element >= 0 && argument.isList();
  if (in_list && static_cast<size_t>(element) >= argument.toListRef().size()) return std::nullopt;
  const c10::IValue& value =
      in_list ? argument.toListRef()[static_cast<size_t>(element)] : argument;
  if (!value.isScalar() || value.isComplexDouble()) return std::nullopt;
  return value.toScalar().toDouble();
}

int64_t CallReader::integer(size_t position) const {
  return call_.arguments[position].toInt();
}

bool CallReader::flag(size_t position) const {
  return call_.arguments[position].toBool();
}

std::vector<int64_t> CallReader::integers(size_t position) const {
  const c10::IValue& value = call_.arguments[position];
  if (value.isNone()) return {};
  if (value.isInt()) return {value.toInt()};
  return value.toIntVector();
}

std::string CallReader::text(size_t position) const {
  return std::string(call_.arguments[position].toStringView());
}

bool CallReader::is_constant(const TensorRef& tensor) const {
  const Memory& memory = imported_.memories[tensor.memory.index];
  if (memory.role == Role::kConstant) return true;
  if (memory.role != Role::kExternal) return false;
  for (const Op& op : recorded_graph_.ops)
    for (const Operand& operand : op.operands)
      if (operand.writes && recorded_graph_.memories[operand.memory.index].buffer == memory.buffer)
        return false;
  return true;
}

const Operand* CallReader::result_operand() const {
  const Operand* result = nullptr;
  for (const Operand& operand : recorded_.operands) {
    if (!operand.writes) continue;
    if (recorded_graph_.memories[operand.memory.index].role == Role::kGenerator) continue;
    const bool first = call_.results.empty() || operand.view == call_.results.front().view;
    if (first && !result) {
      result = &operand;
      continue;
    }
    if (operand.before == operand.after || value_is_needed_[operand.after.index]) return nullptr;
  }
  if (!result || result->before == result->after) return nullptr;
  const Role role = recorded_graph_.memories[result->memory.index].role;
  const bool known = role == Role::kIntermediate || role == Role::kExternal || role == Role::kInput;
  return known ? result : nullptr;
}

// In place: an element of the first argument. Else an element of the results.
const Operand* CallReader::result_operand_of(int32_t element) const {
  if (element < 0) return result_operand();
  const TensorSlot* place = nullptr;
  for (const ResultSlot& slot : call_.results)
    if (slot.position == 0 && slot.element == element) place = &slot;
  if (call_.results.empty()) place = slot(0, element);
  const Operand* result = place ? operand(place->view, true) : nullptr;
  if (!result || result->before == result->after) return nullptr;
  // What one element leaves, no other may touch: in eager they would see each other's results.
  for (const Operand& other : recorded_.operands)
    if (other.memory == result->memory && other.view != result->view) return nullptr;
  for (const TensorSlot& other : call_.tensors)
    if (other.view == result->view && other.element != element) return nullptr;
  return result;
}

std::optional<TensorDesc> CallReader::result_of(int32_t element) const {
  const Operand* operand = result_operand_of(element);
  if (!operand) return std::nullopt;
  return recorded_graph_.desc_of(*operand);
}

void CallReader::emit_result_of(int32_t element, OpAttributes attributes,
                                const std::vector<TensorRef>& inputs, TensorDesc desc) {
  const Operand* result = result_operand_of(element);
  NIMBLE_ASSERT(result, recorded_.name);
  emit_into(std::move(attributes), inputs, {{new_memory_for(*result), std::move(desc)}});
}

const ResultSlot* CallReader::result_slot(uint32_t position) const {
  for (const ResultSlot& slot : call_.results)
    if (slot.position == position) return &slot;
  return nullptr;
}

std::optional<TensorDesc> CallReader::result(uint32_t position) const {
  const ResultSlot* slot = result_slot(position);
  const Operand* operand = slot ? this->operand(slot->view, true) : nullptr;
  if (!operand || operand->before == operand->after) return std::nullopt;
  return recorded_graph_.desc_of(*operand);
}

bool CallReader::is_used(uint32_t result) const {
  const ResultSlot* slot = result_slot(result);
  const Operand* operand = slot ? this->operand(slot->view, true) : nullptr;
  return operand && value_is_needed_[operand->after.index];
}

bool CallReader::writes_only_results(std::initializer_list<size_t> and_arguments) const {
  const auto is_result = [&](ViewId view) {
    return std::any_of(call_.results.begin(), call_.results.end(),
                       [&](const ResultSlot& slot) { return slot.view == view; });
  };
  const auto is_listed = [&](ViewId view) {
    return std::any_of(and_arguments.begin(), and_arguments.end(), [&](size_t position) {
      const TensorSlot* slot = this->slot(position);
      return slot && slot->view == view;
    });
  };
  return std::all_of(recorded_.operands.begin(), recorded_.operands.end(),
                     [&](const Operand& operand) {
                       return !operand.writes || is_result(operand.view) || is_listed(operand.view);
                     });
}

TensorRef CallReader::make_result(uint32_t position, TensorDesc desc) {
  const Operand* operand = this->operand(result_slot(position)->view, true);
  return {new_memory_for(*operand), std::move(desc)};
}

TensorRef CallReader::make_temporary(TensorDesc desc) {
  const MemoryId memory = add_memory(imported_, desc.end_byte());
  return {memory, std::move(desc)};
}

TensorRef CallReader::updated(size_t position) {
  const TensorSlot& slot = *this->slot(position);
  const Operand& operand = *this->operand(slot.view, true);
  memory_of_value_[operand.after.index] = memory_of_value_[operand.before.index];
  return {memory_of_value_[operand.before.index], recorded_graph_.views[slot.view.index].desc};
}

MemoryId CallReader::new_memory_for(const Operand& written) {
  const Memory& recorded = recorded_graph_.memories[written.memory.index];
  const MemoryId memory = add_memory(imported_, static_cast<int64_t>(recorded.bytes));
  imported_.memories[memory.index].buffer = recorded.buffer;
  imported_.memories[memory.index].recorded = written.after;
  memory_of_value_[written.after.index] = memory;
  return memory;
}

std::optional<TensorDesc> CallReader::result() const {
  return result_of(-1);
}

void CallReader::emit_into(OpAttributes attributes, const std::vector<TensorRef>& inputs,
                           const std::vector<TensorRef>& results,
                           const std::vector<TensorRef>& updated) {
  Op op;
  op.name = recorded_.name;
  op.module = recorded_.module;
  op.source = recorded_.source;
  op.attributes = std::move(attributes);
  for (const TensorRef& input : inputs)
    op.operands.push_back(reading(input.memory, add_view(imported_, input.desc)));
  for (const TensorRef& result : results)
    op.operands.push_back(writing(result.memory, add_view(imported_, result.desc)));
  for (const TensorRef& each : updated) {
    op.operands.push_back(writing(each.memory, add_view(imported_, each.desc)));
    op.operands.back().reads = true;
  }
  imported_.ops.push_back(std::move(op));
}

TensorRef CallReader::emit(OpAttributes attributes, const std::vector<TensorRef>& inputs,
                           TensorDesc desc) {
  TensorRef result = make_temporary(std::move(desc));
  emit_into(std::move(attributes), inputs, {result});
  return result;
}

void CallReader::emit_result(OpAttributes attributes, const std::vector<TensorRef>& inputs,
                             TensorDesc desc) {
  emit_result_of(-1, std::move(attributes), inputs, std::move(desc));
}

}  // namespace nimble
