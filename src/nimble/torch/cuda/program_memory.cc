#include "nimble/torch/cuda/program_memory.h"

#include "nimble/base/error.h"
#include "nimble/torch/memory_slot.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {

ProgramMemory::ProgramMemory(const Plan& plan, const std::vector<Segment>& segments)
    : plan_(plan), storages_(plan.graph.memories.size()), stays_(plan.graph.memories.size(), true) {
  const Graph& graph = plan_.graph;
  for (size_t i = 0; i < storages_.size(); ++i) {
    const Memory& memory = graph.memories[i];
    if (memory.role == Role::kExternal || memory.role == Role::kConstant)
      storages_[i] = plan_.recording.storages[memory.buffer.index];
  }
  for (const Port& input : graph.inputs) allocate(input.memory);
  std::vector<bool> is_made(storages_.size());
  for (const Segment& segment : segments)
    for (uint32_t i = segment.begin; i < segment.end; ++i)
      for (const Operand& operand : graph.ops[i].operands) {
        const uint32_t memory = operand.memory.index;
        if (is_made[memory] || storages_[memory]) continue;
        is_made[memory] = true;
        stays_[memory] = !segment.captured;
      }
}

void ProgramMemory::drop_all() {
  for (size_t i = 0; i < storages_.size(); ++i)
    if (!stays_[i]) storages_[i] = {};
}

MemoryId ProgramMemory::memory_for(const Op& op, ViewId view) const {
  for (const Operand& operand : op.operands)
    if (operand.view == view) return operand.memory;
  return MemoryId();
}

void ProgramMemory::allocate(MemoryId memory) {
  const Memory& known = plan_.graph.memories[memory.index];
  const auto options =
      at::TensorOptions().dtype(at::kByte).device(plan_.recording.devices[known.buffer.index]);
  storages_[memory.index] = at::empty({static_cast<int64_t>(known.bytes)}, options).storage();
}

at::Tensor ProgramMemory::tensor(const Op& op, ViewId view) {
  const MemoryId memory = memory_for(op, view);
  if (!memory.valid()) {
    // An op that only asks for the shape gets a tensor without memory, which nobody can conjugate.
    TensorDesc desc = plan_.graph.views[view.index].desc;
    desc.conjugate = desc.negative = false;
    const BufferId buffer = plan_.graph.views[view.index].buffer;
    return make_tensor(desc, unbound_storage(0, plan_.recording.devices[buffer.index]));
  }
  if (!storages_[memory.index]) allocate(memory);
  return at({memory, view});
}

at::Tensor ProgramMemory::at(const Port& port) const {
  return make_tensor(plan_.graph.views[port.view.index].desc, storages_[port.memory.index]);
}

void ProgramMemory::take(const Op& op, const ResultSlot& slot, const at::Tensor& result) {
  const MemoryId memory = memory_for(op, slot.view);
  NIMBLE_ASSERT(memory.valid());
  const TensorDesc& expected = plan_.graph.views[slot.view.index].desc;
  if (result.sizes() != at::IntArrayRef(expected.sizes) ||
      static_cast<int8_t>(result.scalar_type()) != expected.dtype.code)
    throw UserError(message(op.name, " gave a result of shape ", result.sizes(), " where ",
                            expected.to_string(),
                            " was recorded: its shape depends on values, which a replay cannot "
                            "follow"));
  const bool same_layout = describe(result) == expected &&
                           result.storage().nbytes() >= plan_.graph.memories[memory.index].bytes;
  c10::Storage& storage = storages_[memory.index];
  if (same_layout && !(stays_[memory.index] && storage)) {
    storage = result.storage();
    return;
  }
  if (!storage || !stays_[memory.index]) allocate(memory);
  at({memory, slot.view}).copy_(result, /*non_blocking=*/true);
}

}  // namespace nimble
