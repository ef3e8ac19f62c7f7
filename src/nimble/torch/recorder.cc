#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <exception>
#include <unordered_map>

#include "nimble/base/error.h"
#include "nimble/torch/allocation_log.h"
#include "nimble/torch/memory_slot.h"
#include "nimble/torch/op_semantics.h"
#include "nimble/torch/recording.h"
#include "nimble/torch/saved_state.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {
namespace {

std::string (*source_locator)() = nullptr;

std::string here() {
  return source_locator ? source_locator() : "";
}

// Calls visit(tensor, position, element) for every defined tensor among the values.
template <class Values, class Visitor>
void for_each_tensor(const Values& values, const Visitor& visit) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].isTensor()) {
      if (values[i].toTensor().defined()) visit(values[i].toTensor(), i, -1);
    } else if (values[i].isList()) {
      const auto& elements = values[i].toListRef();
      for (size_t e = 0; e < elements.size(); ++e)
        if (elements[e].isTensor() && elements[e].toTensor().defined())
          visit(elements[e].toTensor(), i, static_cast<int32_t>(e));
    }
  }
}

// The argument without its tensors, so that the recording does not keep their memory alive.
c10::IValue without_tensors(const c10::IValue& value) {
  if (value.isTensor()) return at::Tensor();
  if (!value.isList()) return value;
  const auto& elements = value.toListRef();
  if (std::none_of(elements.begin(), elements.end(), [](const auto& e) { return e.isTensor(); }))
    return value;
  c10::List<c10::IValue> list = value.toList().copy();
  for (size_t e = 0; e < list.size(); ++e)
    if (elements[e].isTensor()) list.set(e, at::Tensor());
  return list;
}

// A call between its start and its end.
struct OpenCall : at::ObserverContext {
  explicit OpenCall(c10::OperatorHandle handle) : recorded{handle, {}, {}, {}} {}
  RecordedCall recorded;
  std::vector<Use> uses;
  std::string source;
  bool writes = false;
};

class Recorder {
 public:
  Recorder(const std::vector<at::Tensor>& inputs, const NamedTensors& names)
      : allocations_(std::make_shared<AllocationLog>()) {
    for (const auto& [name, tensor] : names)
      if (tensor.defined() && tensor.has_storage())
        names_.emplace(tensor.storage().unsafeGetStorageImpl(), name);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const BufferId buffer = add_buffer(inputs[i].storage(), Role::kInput);
      describe_buffer(buffer).name = message("input ", i);
      input_buffers_.push_back(buffer);
      recording_.trace.inputs.push_back(view_of(inputs[i]));
    }
    recording_.input_is_written.resize(inputs.size());
  }

  static Recorder*& current() {
    thread_local Recorder* recorder = nullptr;
    return recorder;
  }

  const std::shared_ptr<AllocationLog>& allocations() const { return allocations_; }

  std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) {
    if (call_is_open_ || error_) return nullptr;
    try {
      if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
        refuse(function.name(), "recording a backward pass is not supported", here());
        return nullptr;
      }
      return start_call(function);
    } catch (...) {
      error_ = std::current_exception();
      return nullptr;
    }
  }

  void end(const at::RecordFunction& function, at::ObserverContext* context) {
    if (!context) return;
    call_is_open_ = false;
    if (error_) return;
    try {
      end_call(function, static_cast<OpenCall&>(*context));
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  void enter_module(std::string name) { modules_.push_back(std::move(name)); }
  void leave_module() {
    if (!modules_.empty()) modules_.pop_back();
  }

  void refuse(const std::string& what, const std::string& why, const std::string& where) {
    if (error_) return;
    std::string text = "cannot replay " + what;
    if (!where.empty()) text += " at " + where;
    if (!modules_.empty() && !modules_.back().empty()) text += " (module " + modules_.back() + ")";
    error_ = std::make_exception_ptr(Refused(text + ": " + why));
  }

  void rethrow_refusal() const {
    if (error_) std::rethrow_exception(error_);
  }

  Recording finish(const std::vector<at::Tensor>& outputs) {
    AllocationLog::Pause pause(*allocations_);
    for (const at::Tensor& output : outputs) {
      if (const std::string why = why_not_plain(output); !why.empty())
        refuse("an output", "it is " + why, "");
      rethrow_refusal();
      const BufferId buffer = buffer_of(output);
      // The program made it without an op: every replay must hand out a new one.
      if (is_unwritten(buffer) || role(buffer) == Role::kConstant) make_writable(buffer, output);
      if (role(buffer) == Role::kIntermediate) describe_buffer(buffer).is_output = true;
      recording_.trace.outputs.push_back(view_of(output));
      recording_.outputs.push_back(output.detach().clone());
    }
    Trace& trace = recording_.trace;
    trace.framework_peak_bytes = allocations_->peak_bytes();
    trace.calls.insert(trace.calls.begin(), prologue_.begin(), prologue_.end());
    recording_.calls.insert(recording_.calls.begin(), prologue_calls_.begin(),
                            prologue_calls_.end());
    for (size_t i = 0; i < trace.buffers.size(); ++i) {
      const bool kept = trace.buffers[i].role == Role::kExternal ||
                        trace.buffers[i].role == Role::kConstant;
      if (!kept) recording_.storages[i] = {};
    }
    return std::move(recording_);
  }

 private:
  std::unique_ptr<at::ObserverContext> start_call(const at::RecordFunction& function) {
    const auto name = function.operator_name();
    if (!name) return nullptr;
    const auto op = c10::Dispatcher::singleton().findSchema(*name);
    if (!op) return nullptr;
    const OpSemantics& semantics = semantics_of(*op);
    const c10::ArrayRef<const c10::IValue> arguments = function.inputs();
    if (const std::string why = refusal_of_call(*op, arguments); !why.empty()) {
      refuse(c10::toString(*name), why, here());
      return nullptr;
    }
    if (semantics.is_composite) return nullptr;
    const bool autocast = !c10::impl::tls_local_dispatch_key_set().excluded_.has(
        c10::DispatchKey::AutocastCPU);
    if (autocast && semantics.has_autocast_kernel) return nullptr;

    AllocationLog::Pause pause(*allocations_);
    auto call = std::make_unique<OpenCall>(*op);
    call->source = here();
    if (!arguments_are_plain(*name, arguments, call->source)) return nullptr;
    if (!semantics.only_allocates && !semantics.only_changes_metadata)
      add_arguments(*call, arguments);
    if (semantics.draws_random_numbers) add_generators(*call, arguments);
    call_is_open_ = true;
    allocations_->mark();
    return call;
  }

  bool arguments_are_plain(const c10::OperatorName& name,
                           c10::ArrayRef<const c10::IValue> arguments, const std::string& source) {
    bool plain = true;
    for_each_tensor(arguments, [&](const at::Tensor& tensor, size_t, int32_t) {
      const std::string why = why_not_plain(tensor);
      if (plain && !why.empty()) refuse(c10::toString(name), "an argument is " + why, source);
      plain &= why.empty();
    });
    return plain;
  }

  void add_arguments(OpenCall& call, c10::ArrayRef<const c10::IValue> arguments) {
    const std::vector<ArgumentEffect> effects = effects_of_call(call.recorded.op, arguments);
    for (const c10::IValue& argument : arguments)
      call.recorded.arguments.push_back(without_tensors(argument));
    for_each_tensor(arguments, [&](const at::Tensor& tensor, size_t position, int32_t element) {
      const ArgumentEffect effect = effects[position];
      const BufferId buffer = buffer_of(tensor);
      const bool reads = effect == ArgumentEffect::kRead || effect == ArgumentEffect::kUpdate;
      const bool writes =
          effect == ArgumentEffect::kUpdate || effect == ArgumentEffect::kOverwrite;
      if (writes) note_write(buffer, tensor, reads);
      if (reads && !writes && is_unwritten(buffer)) make_constant(buffer, tensor);
      const ViewId view = view_of(tensor);
      call.recorded.tensors.push_back({static_cast<uint32_t>(position), element, view});
      if (reads || writes) add_use(call.uses, {view, reads, writes});
      call.writes |= writes;
    });
  }

  void add_generators(OpenCall& call, c10::ArrayRef<const c10::IValue> arguments) {
    for (const c10::IValue& argument : arguments)
      if (argument.isGenerator()) draw_from(argument.toGenerator());
    draw_from(at::detail::getDefaultCPUGenerator());
    add_use(call.uses, {generator_view(), true, true});
    call.writes = true;
  }

  void draw_from(const at::Generator& generator) {
    auto& known = recording_.generators;
    if (std::find(known.begin(), known.end(), generator) != known.end()) return;
    known.push_back(generator);
    state_.save(generator);
  }

  void end_call(const at::RecordFunction& function, OpenCall& call) {
    const c10::OperatorHandle& op = call.recorded.op;
    const OpSemantics& semantics = semantics_of(op);
    const std::vector<c10::IValue> outputs = function.outputs();
    if (outputs.size() != op.schema().returns().size()) {
      refuse(c10::toString(op.operator_name()),
             "it raised an error, and whether it does can depend on values", call.source);
      return;
    }
    AllocationLog::Pause pause(*allocations_);
    bool has_tensors = false;
    std::vector<BufferId> fresh;
    for_each_tensor(outputs, [&](const at::Tensor& tensor, size_t position, int32_t element) {
      if (const std::string why = why_not_plain(tensor); !why.empty()) {
        refuse(c10::toString(op.operator_name()), "its result is " + why, call.source);
        return;
      }
      has_tensors = true;
      if (!known(tensor)) fresh.push_back(add_buffer(tensor.storage(), Role::kIntermediate));
      const BufferId buffer = buffer_of(tensor);
      if (std::find(fresh.begin(), fresh.end(), buffer) == fresh.end()) return;
      const ViewId view = view_of(tensor);
      call.recorded.results.push_back({{static_cast<uint32_t>(position), element, view},
                                       allocations_->index_since_mark(tensor.storage().data())});
      add_use(call.uses, {view, false, true});
    });
    if (semantics.only_allocates || semantics.only_changes_metadata) {
      for (BufferId buffer : fresh) unwritten_[buffer.index] = true;
      return;
    }
    const bool only_views = has_tensors && fresh.empty() && !call.writes;
    const bool only_numbers = !has_tensors && !outputs.empty() && !call.writes;
    if (only_views || only_numbers) return;
    recording_.trace.calls.push_back({c10::toString(op.operator_name()),
                                      modules_.empty() ? "" : modules_.back(), call.source,
                                      std::move(call.uses)});
    recording_.calls.push_back(std::move(call.recorded));
  }

  // ---- buffers and views ----

  bool known(const at::Tensor& tensor) const {
    return buffers_.contains(tensor.storage().unsafeGetStorageImpl());
  }

  BufferId buffer_of(const at::Tensor& tensor) {
    const c10::Storage& storage = tensor.storage();
    if (auto found = buffers_.find(storage.unsafeGetStorageImpl()); found != buffers_.end()) {
      Buffer& buffer = describe_buffer(found->second);
      buffer.bytes = std::max(buffer.bytes, storage.nbytes());
      return found->second;
    }
    // Nobody the recorder heard made it: it was there before, or was filled by hand in the run.
    const Role role = allocations_->is_live(storage.data()) ? Role::kConstant : Role::kExternal;
    const BufferId buffer = add_buffer(storage, role);
    recording_.storages[buffer.index] = storage;
    recording_.external_tensors[buffer.index] = tensor;
    return buffer;
  }

  BufferId add_buffer(const c10::Storage& storage, Role role) {
    const BufferId id(recording_.trace.buffers.size());
    c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
    const auto name = names_.find(impl);
    recording_.trace.buffers.push_back(
        {storage.nbytes(), role, name == names_.end() ? "" : name->second, false});
    recording_.storages.emplace_back();
    recording_.external_tensors.emplace_back();
    unwritten_.push_back(false);
    views_of_.emplace_back();
    buffers_[impl] = id;
    // A weak reference: the address stays taken, the memory does not.
    watched_.push_back(storage.getWeakStorageImpl());
    return id;
  }

  ViewId view_of(const at::Tensor& tensor) { return add_view(buffer_of(tensor), describe(tensor)); }

  ViewId add_view(BufferId buffer, TensorDesc desc) {
    for (ViewId view : views_of_[buffer.index])
      if (recording_.trace.views[view.index].desc == desc) return view;
    const ViewId view(recording_.trace.views.size());
    recording_.trace.views.push_back({buffer, std::move(desc)});
    views_of_[buffer.index].push_back(view);
    return view;
  }

  ViewId whole_buffer(BufferId buffer) {
    TensorDesc desc;
    desc.dtype = {static_cast<int8_t>(at::kByte), 1, "Byte"};
    desc.sizes = {static_cast<int64_t>(describe_buffer(buffer).bytes)};
    desc.strides = {1};
    return add_view(buffer, desc);
  }

  ViewId generator_view() {
    if (!generator_.valid()) {
      generator_ = add_buffer(unbound_storage(1), Role::kGenerator);
    }
    return whole_buffer(generator_);
  }

  static void add_use(std::vector<Use>& uses, const Use& use) {
    for (Use& known : uses) {
      if (known.view != use.view) continue;
      known.reads |= use.reads;
      known.writes |= use.writes;
      return;
    }
    uses.push_back(use);
  }

  Buffer& describe_buffer(BufferId buffer) { return recording_.trace.buffers[buffer.index]; }
  Role role(BufferId buffer) { return describe_buffer(buffer).role; }
  bool is_unwritten(BufferId buffer) const { return unwritten_[buffer.index]; }

  // ---- what writes mean for what was there ----

  void note_write(BufferId buffer, const at::Tensor& tensor, bool reads) {
    switch (role(buffer)) {
      case Role::kInput: {
        const auto found = std::find(input_buffers_.begin(), input_buffers_.end(), buffer);
        recording_.input_is_written[found - input_buffers_.begin()] = true;
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
        const bool whole = tensor.is_non_overlapping_and_dense() &&
                           tensor.nbytes() == tensor.storage().nbytes();
        if (is_unwritten(buffer) && (reads || !whole)) make_writable(buffer, tensor);
        unwritten_[buffer.index] = false;
      }
    }
  }

  // Memory with contents that no op made and no op has written so far.
  void make_constant(BufferId buffer, const at::Tensor& tensor) {
    describe_buffer(buffer).role = Role::kConstant;
    recording_.storages[buffer.index] = tensor.storage();
    recording_.external_tensors[buffer.index] = tensor;
    unwritten_[buffer.index] = false;
  }

  // The program is about to change it: from now on every replay starts by filling a buffer of its
  // own with what is there now.
  void make_writable(BufferId buffer, const at::Tensor& tensor) {
    unwritten_[buffer.index] = false;
    describe_buffer(buffer).role = Role::kIntermediate;
    recording_.storages[buffer.index] = {};
    recording_.external_tensors[buffer.index] = at::Tensor();
    const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
    describe_buffer(buffer).bytes = bytes;
    at::Tensor contents = at::empty({bytes}, at::TensorOptions().dtype(at::kByte));
    if (bytes > 0) std::memcpy(contents.mutable_data_ptr(), tensor.storage().data(), bytes);
    const BufferId source = add_buffer(contents.storage(), Role::kConstant);
    recording_.storages[source.index] = contents.storage();

    static const auto copy =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
    const ViewId to = whole_buffer(buffer);
    const ViewId from = whole_buffer(source);
    prologue_calls_.push_back(
        {copy, {at::Tensor(), at::Tensor(), false}, {{0, -1, to}, {1, -1, from}}, {}});
    prologue_.push_back({"aten::copy_", "", "", {{from, true, false}, {to, false, true}}});
  }

  std::shared_ptr<AllocationLog> allocations_;
  SavedState state_;
  Recording recording_;
  std::vector<Call> prologue_;
  std::vector<RecordedCall> prologue_calls_;

  std::unordered_map<const c10::StorageImpl*, BufferId> buffers_;
  std::unordered_map<const c10::StorageImpl*, std::string> names_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> watched_;
  std::vector<std::vector<ViewId>> views_of_;  // by buffer
  std::vector<bool> unwritten_;                // by buffer: allocated, contents not from an op
  std::vector<BufferId> input_buffers_;
  std::vector<BufferId> saved_;
  BufferId generator_;

  std::vector<std::string> modules_;
  bool call_is_open_ = false;
  std::exception_ptr error_;
};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  Recorder* recorder = Recorder::current();
  return recorder ? recorder->start(function) : nullptr;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (Recorder* recorder = Recorder::current()) recorder->end(function, context);
}

// Makes a recorder hear the calls of this thread.
class Listening {
 public:
  explicit Listening(Recorder& recorder)
      : memory_(c10::DebugInfoKind::PROFILER_STATE, recorder.allocations()) {
    Recorder::current() = &recorder;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(on_start, on_end)
            .needsInputs(true)
            .needsOutputs(true)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }
  ~Listening() {
    at::removeCallback(handle_);
    Recorder::current() = nullptr;
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  c10::DebugInfoGuard memory_;
  at::CallbackHandle handle_;
};

}  // namespace

Recording record_calls(const TensorFunction& function, const std::vector<at::Tensor>& inputs,
                       const NamedTensors& names) {
  if (Recorder::current())
    throw UserError("a recording runs on this thread already: a recorded program cannot record");
  std::vector<at::Tensor> copies;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (const std::string why = why_not_plain(inputs[i]); !why.empty())
      throw Refused(message("cannot record: input ", i, " is ", why));
    copies.push_back(copy_with_strides(inputs[i]));
  }
  at::autocast::clear_cache();  // a cached cast would hide the parameter it came from
  Recorder recorder(copies, names);
  std::vector<at::Tensor> outputs;
  try {
    Listening listening(recorder);
    outputs = function(copies);
  } catch (...) {
    recorder.rethrow_refusal();  // what came first explains what came after
    throw;
  }
  recorder.rethrow_refusal();
  return recorder.finish(outputs);
}

void enter_module(std::string name) {
  if (Recorder* recorder = Recorder::current()) recorder->enter_module(std::move(name));
}

void leave_module() {
  if (Recorder* recorder = Recorder::current()) recorder->leave_module();
}

void refuse_recording(const std::string& what, const std::string& why) {
  if (Recorder* recorder = Recorder::current()) recorder->refuse(what, why, here());
}

void set_source_locator(std::string (*locate)()) {
  source_locator = locate;
}

}  // namespace nimble
