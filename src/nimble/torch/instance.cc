#include "nimble/torch/instance.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>

#include "nimble/base/error.h"
#include "nimble/torch/results.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {

Instance::Instance(const Plan& plan, const PlannedSchedule& planned, bool borrowed_outputs)
    : plan_(plan),
      intra_op_threads_(planned.intra_op_threads),
      borrowed_outputs_(borrowed_outputs),
      tensors_(plan.graph.views.size()) {
  const FrameworkDispatch dispatch;
  const Schedule& schedule = planned.built.schedule;
  arena_ = allocate_pages(schedule.arena_bytes - schedule.result_bytes);
  results_ = std::make_shared<ResultMemory>(schedule.result_bytes);
  live_numbers_.resize(plan.recording.live_values.size());
  set_live_numbers(plan.recording.live_values);
  make_slots(planned);
  if (borrowed_outputs_) bind_results();
  make_tasks();
  plan_fetches(schedule);
  staging_.resize(plan_.graph.inputs.size());
  replayer_ = std::make_unique<Replayer>(schedule, bindings_, framework_workers());
}

void Instance::make_slots(const PlannedSchedule& planned) {
  const Schedule& schedule = planned.built.schedule;
  const Graph& graph = plan_.graph;
  for (size_t i = 0; i < graph.memories.size(); ++i) {
    const Memory& memory = graph.memories[i];
    MemorySlot& slot = slots_.emplace_back();
    if (memory.role == Role::kExternal || memory.role == Role::kConstant) {
      slot.storage = plan_.recording.storages[memory.buffer.index];
      continue;
    }
    slot.storage = unbound_storage(memory.bytes);
    if (memory.role == Role::kFolded) folded_memories_.push_back(MemoryId(i));
    if (memory.role == Role::kLive) slot.bind(live_numbers_.data());
    if (memory.role != Role::kIntermediate) continue;
    if (memory.is_output) output_memories_.push_back(MemoryId(i));
    if (plan_.adopted[i]) {
      adopted_memories_.push_back(MemoryId(i));
      slot.released_after_last_use = !memory.is_output;
    } else if (const Placement& place = schedule.placements[i];
               place.in_arena && (place.is_result || place.offset < schedule.result_bytes)) {
      placed_results_.push_back({&slot, place.offset, place.is_result});
    } else if (memory.is_output) {
      if (!borrowed_outputs_) continue;
      slot.owner =
          at::empty({static_cast<int64_t>(memory.bytes)}, at::TensorOptions().dtype(at::kByte))
              .storage();
      slot.bind(slot.owner.mutable_data());
    } else {
      slot.home = arena_.get() + (place.offset - schedule.result_bytes);
      slot.bind(slot.home);
    }
  }
}

void Instance::make_tasks() {
  for (size_t i = 0; i < plan_.graph.ops.size(); ++i)
    plan_.graph.ops[i].call.valid() ? make_framework_task(OpId(i)) : make_native_task(OpId(i));
}

void Instance::make_framework_task(OpId op) {
  const CallId call = plan_.graph.ops[op.index].call;
  FrameworkTask& task = framework_tasks_.emplace_back(
      plan_.recording.calls[call.index], plan_.bindings[call.index],
      [&](const TensorSlot& slot) { return tensor_for(op, slot.view); },
      [&](const TensorSlot& slot) -> MemorySlot& { return slot_for(op, slot.view); });
  framework_calls_.push_back(call);
  if (task.has_live()) live_tasks_.push_back(&task);
  release_after(op, task);
  bindings_.push_back(task.binding());
}

void Instance::make_native_task(OpId id) {
  const Op& op = plan_.graph.ops[id.index];
  const Kernel& kernel = *plan_.kernels[op.kernel.index].kernel;
  NativeTask& task =
      native_tasks_.emplace_back(kernel, op.part.value_or(kernel.work().whole()), op.group);
  for (const Operand& operand : op.operands)
    task.add_operand(slots_[operand.memory.index], plan_.graph.desc_of(operand).begin_byte());
  if (kernel.scratch_bytes(op.part.value_or(kernel.work().whole())) > 0)
    task.last_operand_is_scratch();
  release_after(id, task);
  bindings_.push_back(task.binding());
}

void Instance::plan_fetches(const Schedule& schedule) {
  std::vector<WeightUse> uses;
  for (const Op& op : plan_.graph.ops) {
    WeightUse& use = uses.emplace_back();
    if (op.call.valid()) continue;
    const Kernel& kernel = *plan_.kernels[op.kernel.index].kernel;
    const PackedRange range = kernel.packed_range(op.part.value_or(kernel.work().whole()));
    use = {op.group, range.begin, range.end};
  }
  const std::vector<WeightUse> fetches = plan_fetching(schedule, uses, kMostFetchedAhead);
  for (size_t i = 0; i < fetches.size(); ++i)
    if (!plan_.graph.ops[i].call.valid()) fetches_.push_back(fetches[i]);
}

template <class TaskType>
void Instance::release_after(OpId op, TaskType& task) {
  std::vector<MemoryId> touched;
  for (const Operand& operand : plan_.graph.ops[op.index].operands) {
    MemorySlot& slot = slots_[operand.memory.index];
    if (!slot.released_after_last_use ||
        std::find(touched.begin(), touched.end(), operand.memory) != touched.end())
      continue;
    touched.push_back(operand.memory);
    ++slot.uses_per_replay;
    task.release_after(slot);
  }
}

void Instance::use(const WeightImage& weights) {
  if (weights_ == weights.id()) return;
  for (MemoryId memory : folded_memories_) slots_[memory.index].bind(weights.folded(memory));
  for (size_t i = 0; i < native_tasks_.size(); ++i) {
    native_tasks_[i].use_packed(weights.packed(native_tasks_[i].group()));
    const WeightUse& next = fetches_[i];
    const std::byte* packed = weights.packed(next.op);
    if (next.begin < next.end)
      native_tasks_[i].fetch_ahead({packed + next.begin, packed + next.end});
  }
  weights_ = weights.id();
}

void Instance::set_live(c10::ArrayRef<double> values) {
  if (values == c10::ArrayRef<double>(live_values_)) return;
  for (FrameworkTask* task : live_tasks_) task->set_live(values);
  set_live_numbers(values);
  live_values_ = values.vec();
}

void Instance::set_live_numbers(c10::ArrayRef<double> values) {
  std::transform(values.begin(), values.end(), live_numbers_.begin(),
                 [](double value) { return static_cast<float>(value); });
}

MemoryId Instance::memory_for(OpId op, ViewId view) const {
  for (const Operand& operand : plan_.graph.ops[op.index].operands)
    if (operand.view == view) return operand.memory;
  return MemoryId();
}

MemorySlot& Instance::slot_for(OpId op, ViewId view) {
  const MemoryId memory = memory_for(op, view);
  NIMBLE_ASSERT(memory.valid());
  return slots_[memory.index];
}

at::Tensor Instance::tensor_for(OpId op, ViewId view) {
  const MemoryId memory = memory_for(op, view);
  if (memory.valid()) return tensor_on(memory, view);
  // An op that only asks for the shape gets a tensor without memory, which nobody can conjugate.
  TensorDesc desc = plan_.graph.views[view.index].desc;
  desc.conjugate = desc.negative = false;
  return make_tensor(desc, unbound_storage(0));
}

at::Tensor Instance::tensor_on(MemoryId memory, ViewId view) {
  auto& known = tensors_[view.index];
  for (const auto& [where, tensor] : known)
    if (where == memory) return tensor;
  known.emplace_back(memory,
                     make_tensor(plan_.graph.views[view.index].desc, slots_[memory.index].storage));
  return known.back().second;
}

template <class Replay>
auto Instance::replay(c10::ArrayRef<at::Tensor> inputs, const Replay& replay) {
  const ReplayGuard guard(intra_op_threads_);
  try {
    bind_inputs(inputs);
    bind_outputs();
    return replay();
  } catch (...) {
    release_results();
    throw;
  }
}

std::vector<at::Tensor> Instance::run(c10::ArrayRef<at::Tensor> inputs) {
  return replay(inputs, [&] {
    replayer_->run();
    return collect_outputs(inputs);
  });
}

std::vector<TaskTime> Instance::run_timed(c10::ArrayRef<at::Tensor> inputs) {
  return replay(inputs, [&] {
    std::vector<TaskTime> times = replayer_->run_timed();
    collect_outputs(inputs);
    return times;
  });
}

Instance::Steps::Steps(Instance& instance, std::vector<at::Tensor> inputs)
    : instance_(instance), inputs_(std::move(inputs)), guard_(instance.intra_op_threads_) {
  instance_.bind_inputs(inputs_);
  instance_.bind_outputs();
}

void Instance::bind_inputs(c10::ArrayRef<at::Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Port& port = plan_.graph.inputs[i];
    const TensorDesc& desc = plan_.graph.views[port.view.index].desc;
    MemorySlot& slot = slots_[port.memory.index];
    const at::Tensor& input = inputs[i];
    const bool same_layout = input.strides() == at::IntArrayRef(desc.strides) &&
                             input.is_conj() == desc.conjugate && input.is_neg() == desc.negative;
    if (same_layout && !is_own_output(input)) {
      slot.bind(plan_.recording.input_is_written[i] ? input.mutable_data_ptr()
                                                    : const_cast<void*>(input.const_data_ptr()));
      staging_[i].reset();
      continue;
    }
    slot.owner = at::empty({static_cast<int64_t>(slot.storage.nbytes())},
                           at::TensorOptions().dtype(at::kByte))
                     .storage();
    slot.bind(slot.owner.mutable_data());
    staging_[i] = make_tensor(desc, slot.owner);
    staging_[i].copy_(input);
  }
}

// Whether it is a borrowed output: that memory is written before all of the input has been read.
bool Instance::is_own_output(const at::Tensor& input) const {
  if (!borrowed_outputs_) return false;
  return std::any_of(output_memories_.begin(), output_memories_.end(), [&](MemoryId memory) {
    return input.storage().data() == slots_[memory.index].storage.data();
  });
}

// Memory that the last results are not in, unless nobody holds them any more.
void Instance::bind_results() {
  if (placed_results_.empty()) return;
  const ResultMemory::Block block = results_->take();
  for (const PlacedResult& result : placed_results_) {
    MemorySlot& slot = *result.slot;
    std::byte* place = block.get() + result.offset;
    slot.bind(place);
    if (result.leaves) {
      slot.owner = storage_in(block, result.offset, slot.storage.nbytes());
    } else {
      slot.home = place;
    }
  }
}

void Instance::bind_outputs() {
  if (borrowed_outputs_) return;
  bind_results();
  for (MemoryId memory : output_memories_) {
    MemorySlot& slot = slots_[memory.index];
    if (plan_.adopted[memory.index] || slot.owner) continue;
    const size_t bytes = slot.storage.nbytes();
    c10::Allocator* allocator = c10::GetCPUAllocator();
    slot.owner = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), bytes, allocator->allocate(bytes), allocator, true));
    slot.bind(slot.owner.mutable_data());
  }
}

std::vector<at::Tensor> Instance::collect_outputs(c10::ArrayRef<at::Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (plan_.recording.input_is_written[i] && staging_[i].defined()) inputs[i].copy_(staging_[i]);
  std::vector<at::Tensor> outputs = collect_results(
      plan_, inputs, [this](MemoryId memory) { return slots_[memory.index].owner; });
  release_results();
  return outputs;
}

// Hands what the framework or the caller owns back; the instance keeps no result alive.
void Instance::release_results() {
  for (MemoryId memory : adopted_memories_) slots_[memory.index].owner = {};
  if (!borrowed_outputs_)
    for (MemoryId memory : output_memories_) slots_[memory.index].owner = {};
  for (size_t i = 0; i < staging_.size(); ++i) {
    if (!staging_[i].defined()) continue;
    staging_[i].reset();
    slots_[plan_.graph.inputs[i].memory.index].owner = {};
  }
}

std::vector<CallId> Instance::misfits() const {
  std::vector<CallId> found;
  for (size_t i = 0; i < framework_tasks_.size(); ++i) {
    const CallId call = framework_calls_[i];
    std::vector<TensorDesc> planned;
    for (const ResultSlot& result : plan_.recording.calls[call.index].results)
      planned.push_back(plan_.graph.views[result.view.index].desc);
    if (!framework_tasks_[i].followed_the_plan(planned)) found.push_back(call);
  }
  return found;
}

}  // namespace nimble
