#include "nimble/torch/buffer_table.h"

#include <algorithm>

#include "nimble/base/error.h"
#include "nimble/torch/memory_slot.h"
#include "nimble/torch/planned_allocator.h"

namespace nimble {

BufferTable::BufferTable(Recording& recording, const AllocationLog& allocations, SavedState& state,
                         Refusal& refusal, const NamedTensors& names)
    : recording_(recording), allocations_(allocations), state_(state), refusal_(refusal) {
  for (const auto& [name, tensor] : names)
    if (tensor.defined() && tensor.has_storage())
      names_.emplace(tensor.storage().unsafeGetStorageImpl(), name);
}

bool BufferTable::known(const at::Tensor& tensor) const {
  return buffers_.contains(tensor.storage().unsafeGetStorageImpl());
}

BufferId BufferTable::buffer_of(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  if (auto found = buffers_.find(storage.unsafeGetStorageImpl()); found != buffers_.end()) {
    Buffer& buffer = (*this)[found->second];
    buffer.bytes = std::max(buffer.bytes, storage.nbytes());
    return found->second;
  }
  // Nobody the recorder heard made it: it was there before, or was filled by hand in the run.
  const bool ours = allocations_.is_live(storage.data());
  const auto same = addresses_.find(storage.data());
  if (ours && same != addresses_.end() && !watched_[same->second.index].expired())
    refusal_.note("a tensor",
                  "it shares the memory of another one without the framework knowing "
                  "(NumPy, DLPack)",
                  source_here());
  if (ours && allocations_.is_inner(storage.data()))
    refusal_.note("a tensor", "an op made it for itself, and kept it for the backward pass",
                  source_here());
  if (allocated_by_another_thread(storage.data()))
    refusal_.note("a tensor", "it was made by another thread, whose work is not recorded",
                  source_here());
  const BufferId buffer = add_buffer(storage, ours ? Role::kConstant : Role::kExternal);
  recording_.storages[buffer.index] = storage;
  recording_.external_tensors[buffer.index] = tensor;
  return buffer;
}

BufferId BufferTable::add_buffer(const c10::Storage& storage, Role role) {
  const BufferId id(recording_.trace.buffers.size());
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  const auto name = names_.find(impl);
  recording_.trace.buffers.push_back(
      {storage.nbytes(), role, name == names_.end() ? "" : name->second, false});
  recording_.storages.emplace_back();
  recording_.devices.push_back(storage.device());
  recording_.external_tensors.emplace_back();
  unwritten_.push_back(false);
  varies_.push_back(role != Role::kConstant && role != Role::kIntermediate);
  if (role == Role::kIntermediate) addresses_[storage.data()] = id;
  views_of_.emplace_back();
  buffers_[impl] = id;
  // A weak reference: the address stays taken, the memory does not.
  watched_.push_back(storage.getWeakStorageImpl());
  return id;
}

ViewId BufferTable::add_view(BufferId buffer, TensorDesc desc) {
  for (ViewId view : views_of_[buffer.index])
    if (recording_.trace.views[view.index].desc == desc) return view;
  const ViewId view(recording_.trace.views.size());
  recording_.trace.views.push_back({buffer, std::move(desc)});
  views_of_[buffer.index].push_back(view);
  return view;
}

ViewId BufferTable::whole_buffer(BufferId buffer) {
  TensorDesc desc;
  desc.dtype = {static_cast<int8_t>(at::kByte), 1, "Byte"};
  desc.sizes = {static_cast<int64_t>((*this)[buffer].bytes)};
  desc.strides = {1};
  return add_view(buffer, desc);
}

ViewId BufferTable::generator_view() {
  if (!generator_.valid()) {
    generator_ = add_buffer(unbound_storage(1), Role::kGenerator);
  }
  return whole_buffer(generator_);
}

void BufferTable::note_write(BufferId buffer, const at::Tensor& tensor, bool reads) {
  switch (role(buffer)) {
    case Role::kInput: {
      const auto& inputs = recording_.trace.inputs;
      for (size_t i = 0; i < inputs.size(); ++i)
        if (recording_.trace.views[inputs[i].index].buffer == buffer)
          recording_.input_is_written[i] = true;
      break;
    }
    case Role::kExternal:
      if (std::find(saved_.begin(), saved_.end(), buffer) != saved_.end()) break;
      saved_.push_back(buffer);
      state_.save(tensor.storage());
      recording_.written_externals.push_back(tensor);
      break;
    case Role::kConstant:
      make_writable(buffer, tensor);
      break;
    default: {
      const bool whole =
          tensor.is_non_overlapping_and_dense() && tensor.nbytes() == tensor.storage().nbytes();
      if (is_unwritten(buffer) && (reads || !whole)) make_writable(buffer, tensor);
      unwritten_[buffer.index] = false;
    }
  }
}

// A composite op with tensor arguments handed it out, and no op of those it called filled it.
void BufferTable::check_filled(const at::Tensor& tensor) {
  const auto found = unfilled_.find(tensor.storage().unsafeGetStorageImpl());
  if (found != unfilled_.end())
    refusal_.note(found->second, "it computes by itself, not by ops that can be replayed",
                  source_here());
}

// Memory with contents that no op made and no op has written so far.
void BufferTable::make_constant(BufferId buffer, const at::Tensor& tensor) {
  check_filled(tensor);
  (*this)[buffer].role = Role::kConstant;
  recording_.storages[buffer.index] = tensor.storage();
  recording_.external_tensors[buffer.index] = tensor;
  unwritten_[buffer.index] = false;
}

// The program is about to change it: from now on every replay starts by filling a buffer of its
// own with what is there now.
void BufferTable::make_writable(BufferId buffer, const at::Tensor& tensor) {
  unwritten_[buffer.index] = false;
  (*this)[buffer].role = Role::kIntermediate;
  recording_.storages[buffer.index] = {};
  recording_.external_tensors[buffer.index] = at::Tensor();
  (*this)[buffer].bytes = tensor.storage().nbytes();
  const at::Tensor contents = bytes_of_storage(tensor.storage()).clone();
  const BufferId source = add_buffer(contents.storage(), Role::kConstant);
  recording_.storages[source.index] = contents.storage();

  static const auto copy = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  const ViewId to = whole_buffer(buffer);
  const ViewId from = whole_buffer(source);
  prologue_calls_.push_back(
      {copy, {at::Tensor(), at::Tensor(), false}, {{0, -1, to}, {1, -1, from}}, {}});
  prologue_.push_back({"aten::copy_", "", "", {{from, true, false}, {to, false, true}}});
}

// Two storages on the same bytes (two tensors on one NumPy array): what touches one of them is
// ordered with what touches the other, by a buffer that has no bytes, only an order.
void BufferTable::order_shared_memory() {
  std::vector<Buffer>& buffers = recording_.trace.buffers;
  const auto bytes = [&](size_t i) {
    const auto* begin = static_cast<const char*>(recording_.storages[i].data());
    return std::pair(begin, begin + recording_.storages[i].nbytes());
  };
  std::vector<size_t> shared;
  for (BufferId saved : saved_) {
    const auto [begin, end] = bytes(saved.index);
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (i == saved.index || buffers[i].role != Role::kExternal) continue;
      const auto [other_begin, other_end] = bytes(i);
      if (begin < other_end && other_begin < end) shared.insert(shared.end(), {i, saved.index});
    }
  }
  if (shared.empty()) return;
  const ViewId order = whole_buffer(add_buffer(unbound_storage(1), Role::kGenerator));
  for (Call& call : recording_.trace.calls) {
    Use use{order, false, false};
    for (const Use& other : call.uses) {
      const size_t buffer = recording_.trace.views[other.view.index].buffer.index;
      if (std::find(shared.begin(), shared.end(), buffer) == shared.end()) continue;
      use.reads |= other.reads;
      use.writes |= other.writes;
    }
    if (use.reads || use.writes) call.uses.push_back(use);
  }
}

void BufferTable::note_unfilled(const at::Tensor& tensor, const std::string& op) {
  unfilled_[tensor.storage().unsafeGetStorageImpl()] = op;
}

void BufferTable::finish() {
  order_shared_memory();
  Trace& trace = recording_.trace;
  trace.calls.insert(trace.calls.begin(), prologue_.begin(), prologue_.end());
  recording_.calls.insert(recording_.calls.begin(), prologue_calls_.begin(), prologue_calls_.end());
  for (size_t i = 0; i < trace.buffers.size(); ++i) {
    const bool kept =
        trace.buffers[i].role == Role::kExternal || trace.buffers[i].role == Role::kConstant;
    if (!kept) recording_.storages[i] = {};
  }
}

}  // namespace nimble
