// The observer: one class that follows a call from its start to its end. Longer than most, because
// the two ends share its state.

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "nimble/base/error.h"
#include "nimble/torch/allocation_log.h"
#include "nimble/torch/buffer_table.h"
#include "nimble/torch/compare.h"
#include "nimble/torch/cuda.h"
#include "nimble/torch/generator_watch.h"
#include "nimble/torch/ivalue_tensors.h"
#include "nimble/torch/live_numbers.h"
#include "nimble/torch/op_semantics.h"
#include "nimble/torch/planned_allocator.h"
#include "nimble/torch/recording.h"
#include "nimble/torch/refusal.h"
#include "nimble/torch/saved_state.h"
#include "nimble/torch/shape_watch.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {
namespace {

// A composite call: what it calls is recorded.
struct CompositeCall : at::ObserverContext {
  std::string name;
  bool varies = false;
};

// A copy that an op makes of what it is about to overwrite: the backward pass may need it.
struct InnerCopy : at::ObserverContext {
  explicit InnerCopy(c10::OperatorHandle handle) : recorded{handle, {}, {}, {}} {}
  RecordedCall recorded;
  ViewId from;
  at::Tensor copy;  // the result
};

// A call between its start and its end.
struct OpenCall : at::ObserverContext {
  explicit OpenCall(c10::OperatorHandle handle) : recorded{handle, {}, {}, {}} {}
  RecordedCall recorded;
  std::vector<Use> uses;
  std::string source;
  bool writes = false;
  bool varies = false;                // its results can differ from replay to replay
  std::vector<at::Tensor> unwritten;  // that it reads
  std::vector<InnerCopy> copies;      // that it made of what it overwrites
  std::vector<std::pair<at::Tensor, c10::SmallVector<int64_t, 4>>> sizes;  // of what it overwrites
};

class Recorder {
 public:
  Recorder(const std::vector<at::Tensor>& inputs, std::vector<bool> input_is_whole,
           const NamedTensors& names)
      : allocations_(std::make_shared<AllocationLog>()),
        table_(recording_, *allocations_, state_, refusal_, names),
        generators_(recording_.generators, state_, refusal_),
        shapes_(recording_, table_, state_, refusal_),
        input_is_whole_(std::move(input_is_whole)) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const BufferId buffer = table_.add_buffer(inputs[i].storage(), Role::kInput);
      table_[buffer].name = message("input ", i);
      input_buffers_.push_back(buffer);
      note_device(inputs[i]);
      shapes_.watch_input(inputs[i]);
      recording_.trace.inputs.push_back(table_.view_of(inputs[i]));
    }
    recording_.input_is_written.resize(inputs.size());
    recording_.input_offset_matters.resize(inputs.size());
  }

  static Recorder*& current() {
    thread_local Recorder* recorder = nullptr;
    return recorder;
  }

  const std::shared_ptr<AllocationLog>& allocations() const { return allocations_; }
  bool hears_cuda() const { return hears_cuda_; }

  std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) {
    if (busy_) return nullptr;
    const Busy busy(busy_);
    try {
      if (open_call_) return start_inner_copy(function);
      return start_call(function);
    } catch (...) {
      refusal_.note_failure();
      return nullptr;
    }
  }

  void end(const at::RecordFunction& function, at::ObserverContext* context) {
    if (!context) return;
    const Busy busy(busy_);
    try {
      if (auto* composite = dynamic_cast<CompositeCall*>(context)) {
        std::erase(composites_, composite);
        return;
      }
      if (auto* copy = dynamic_cast<InnerCopy*>(context)) {
        end_inner_copy(function, *copy);
        return;
      }
      open_call_ = nullptr;
      end_call(function, static_cast<OpenCall&>(*context));
    } catch (...) {
      refusal_.note_failure();
    }
  }

  Refusal& refusal() { return refusal_; }

  void carry_gradients(const std::vector<at::Tensor>& leaves) {
    for (const at::Tensor& leaf : leaves) carried_.insert(leaf.unsafeGetTensorImpl());
  }

  void join_outputs_from(size_t first) { recording_.trace.first_joint_output = first; }

  bool existed_before(const at::Tensor& tensor) const {
    return tensor.has_storage() && !allocations_->is_live(tensor.storage().data());
  }

  void announce_live(std::vector<LiveArgument> arguments) { live_.announce(std::move(arguments)); }

  Recording finish(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs) {
    const Busy busy(busy_);
    AllocationLog::Pause pause(*allocations_);
    refusal_.rethrow_raised();
    generators_.check("");
    shapes_.check(inputs);
    check_gradients();
    for (const at::Tensor& output : outputs) {
      if (const std::string why = why_not_plain(output); !why.empty())
        refusal_.note("an output", "it is " + why, "");
      refusal_.rethrow();
      const BufferId buffer = table_.buffer_of(output);
      // The program made it without an op: every replay must hand out a new one.
      const bool uninitialised = table_.is_unwritten(buffer);
      const bool constant = uninitialised || table_.role(buffer) == Role::kConstant;
      if (constant) {
        table_.check_filled(output);
        table_.make_writable(buffer, output);
      }
      recording_.output_is_uninitialised.push_back(uninitialised);
      if (table_.role(buffer) == Role::kIntermediate) table_[buffer].is_output = true;
      recording_.trace.outputs.push_back(table_.view_of(output));
      recording_.outputs.push_back(copy_for_comparison(output));
      recording_.output_is_whole_tensor.push_back(is_whole_tensor(output, buffer, inputs));
    }
    refusal_.rethrow();
    for (const at::Tensor& tensor : written_tensors(recording_, inputs))
      recording_.written.push_back(copy_for_comparison(tensor));
    recording_.live_values = live_.values();
    table_.finish();
    recording_.trace.framework_peak_bytes = allocations_->peak_bytes();
    return std::move(recording_);
  }

 private:
  // While the recorder works, the ops it calls itself are not the program's.
  class Busy {
   public:
    explicit Busy(bool& flag) : flag_(flag) { flag_ = true; }
    ~Busy() { flag_ = false; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    bool& flag_;
  };

  // Whether the output is the very tensor that the caller gave or the program holds.
  bool is_whole_tensor(const at::Tensor& output, BufferId buffer,
                       const std::vector<at::Tensor>& inputs) {
    if (table_.role(buffer) == Role::kExternal)
      return output.is_same(recording_.external_tensors[buffer.index]);
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const at::Tensor& input) { return output.is_same(input); });
  }

  std::unique_ptr<at::ObserverContext> start_call(const at::RecordFunction& function) {
    const auto name = function.operator_name();
    if (!name) return nullptr;
    const auto op = c10::Dispatcher::singleton().findSchema(*name);
    if (!op || name->name.starts_with("profiler::")) return nullptr;
    const OpSemantics& semantics = semantics_of(*op);
    const c10::ArrayRef<const c10::IValue> arguments = function.inputs();
    const c10::DeviceType device = device_of(arguments);
    if (const std::string why = refusal_of_call(*op, arguments); !why.empty() && vary(arguments)) {
      refusal_.note(c10::toString(*name), why, source_here());
      return nullptr;
    }
    const bool is_composite =
        semantics.is_composite && !(device == at::kCUDA && semantics.is_one_op_on_cuda);
    if (is_composite || (semantics.is_composite_in_training && need_gradients(arguments))) {
      auto call = std::make_unique<CompositeCall>();
      call->name = c10::toString(*name);
      call->varies = vary(arguments);
      composites_.push_back(call.get());
      return call;
    }
    if (is_autocast(*op, device)) return nullptr;

    AllocationLog::Pause pause(*allocations_);
    auto call = std::make_unique<OpenCall>(*op);
    call->source = source_here();
    if (!arguments_are_plain(*name, arguments, call->source)) return nullptr;
    call->recorded.live = live_.find_in(arguments);
    call->recorded.grad_mode = at::GradMode::is_enabled();
    watch_gradients(arguments);
    if (has_absolute_offset(*op, arguments)) note_absolute_offset(*call, arguments[0].toTensor());
    if (semantics.only_changes_metadata)
      note_metadata_changes(*call, arguments);
    else if (!semantics.only_allocates)
      add_arguments(*call, arguments);
    if (semantics.draws_random_numbers) add_generators(*call, arguments);
    open_call_ = call.get();
    allocations_->mark();
    return call;
  }

  // Autograd copies what an in-place op is about to overwrite, inside of that op.
  std::unique_ptr<at::ObserverContext> start_inner_copy(const at::RecordFunction& function) {
    const auto name = function.operator_name();
    if (!name || name->name != "aten::clone" || !open_call_->copies.empty()) return nullptr;
    const at::Tensor& tensor = function.inputs()[0].toTensor();
    for (const auto& [written, sizes] : open_call_->sizes) {
      if (!written.is_same(tensor)) continue;
      auto copy = std::make_unique<InnerCopy>(*c10::Dispatcher::singleton().findSchema(*name));
      copy->from = table_.view_of(tensor);
      for (const c10::IValue& argument : function.inputs())
        copy->recorded.arguments.push_back(without_tensors(argument));
      copy->recorded.tensors.push_back({0, -1, copy->from});
      return copy;
    }
    return nullptr;
  }

  void end_inner_copy(const at::RecordFunction& function, InnerCopy& copy) {
    const std::vector<c10::IValue> outputs = function.outputs();
    if (!open_call_ || outputs.size() != 1) return;
    copy.copy = outputs[0].toTensor();
    open_call_->copies.push_back(InnerCopy(copy.recorded.op));
    InnerCopy& kept = open_call_->copies.back();
    kept.recorded = std::move(copy.recorded);
    kept.from = copy.from;
    kept.copy = std::move(copy.copy);
  }

  // Before the call that made it. Dropped if nobody kept it.
  void add_inner_copy(InnerCopy& inner, const OpenCall& call) {
    if (inner.copy.use_count() == 1 && inner.copy.storage().use_count() == 1) return;
    const BufferId buffer = table_.add_buffer(inner.copy.storage(), Role::kIntermediate);
    table_.set_varies(buffer, true);
    const ViewId to = table_.view_of(inner.copy);
    inner.recorded.results.push_back({{0, -1, to}, -1});
    recording_.trace.calls.push_back({"aten::clone",
                                      refusal_.module(),
                                      call.source,
                                      {{inner.from, true, false}, {to, false, true}}});
    recording_.calls.push_back(std::move(inner.recorded));
  }

  static c10::DeviceType device_of(c10::ArrayRef<const c10::IValue> arguments) {
    bool on_cuda = false;
    for_each_tensor(arguments, [&](const at::Tensor& tensor, size_t, int32_t) {
      on_cuda |= tensor.device().is_cuda();
    });
    return on_cuda ? at::kCUDA : at::kCPU;
  }

  // All of a program's tensors are on the CPU or on one other device.
  void note_device(const at::Tensor& tensor) {
    const c10::Device device = tensor.device();
    if (device.is_cpu() || device == recording_.device) return;
    if (!recording_.device.is_cpu())
      refusal_.note(
          "a tensor",
          message("it is on ", device.str(), ", and others are on ", recording_.device.str()),
          source_here());
    else if (!hears_cuda_)
      refusal_.note("a tensor",
                    "it is on a CUDA device, which this process has not used before: call "
                    "torch.cuda.init() first",
                    source_here());
    recording_.device = device;
  }

  bool arguments_are_plain(const c10::OperatorName& name,
                           c10::ArrayRef<const c10::IValue> arguments, const std::string& source) {
    bool plain = true;
    for_each_tensor(arguments, [&](const at::Tensor& tensor, size_t, int32_t) {
      const std::string why = why_not_plain(tensor);
      if (plain && !why.empty())
        refusal_.note(c10::toString(name), "an argument is " + why, source);
      plain &= why.empty();
      note_device(tensor);
    });
    return plain;
  }

  void add_arguments(OpenCall& call, c10::ArrayRef<const c10::IValue> arguments) {
    const std::vector<ArgumentEffect> effects = effects_of_call(call.recorded.op, arguments);
    for (const c10::IValue& argument : arguments)
      call.recorded.arguments.push_back(without_tensors(argument));
    for_each_tensor(arguments, [&](const at::Tensor& tensor, size_t position, int32_t element) {
      const ArgumentEffect effect = effects[position];
      const BufferId buffer = table_.buffer_of(tensor);
      const bool reads = effect == ArgumentEffect::kRead || effect == ArgumentEffect::kUpdate;
      const bool writes = effect == ArgumentEffect::kUpdate || effect == ArgumentEffect::kOverwrite;
      if (writes) {
        table_.note_write(buffer, tensor, reads);
        call.sizes.emplace_back(tensor, tensor.sizes());
      }
      call.varies |= reads && table_.varies(buffer);
      if (reads && !writes && table_.is_unwritten(buffer)) call.unwritten.push_back(tensor);
      const ViewId view = table_.view_of(tensor);
      call.recorded.tensors.push_back({static_cast<uint32_t>(position), element, view});
      if (reads || writes) add_use(call.uses, {view, reads, writes});
      call.writes |= writes;
    });
  }

  // Gradients that the program leaves in tensors are results, too. Whoever records sees to those it
  // knows of; there must be no others.
  void watch_gradients(c10::ArrayRef<const c10::IValue> arguments) {
    for_each_tensor(arguments, [&](const at::Tensor& tensor, size_t, int32_t) {
      if (tensor.requires_grad() && tensor.is_leaf() && existed_before(tensor) &&
          !carried_.contains(tensor.unsafeGetTensorImpl()))
        gradients_.try_emplace(tensor.unsafeGetTensorImpl(), tensor, tensor.grad());
    });
  }

  void check_gradients() {
    for (const auto& [leaf, before] : gradients_)
      if (!before.first.grad().is_same(before.second))
        refusal_.note("a backward pass",
                      "it leaves a gradient in a tensor that the program reaches in a way that is "
                      "not seen; make the tensor a parameter of a module, or return the gradient "
                      "(torch.autograd.grad)",
                      "");
  }

  void add_generators(OpenCall& call, c10::ArrayRef<const c10::IValue> arguments) {
    for (const c10::IValue& argument : arguments)
      if (argument.isGenerator()) generators_.draw_from(argument.toGenerator());
    generators_.draw_from(at::detail::getDefaultCPUGenerator());
    if (recording_.device.is_cuda())
      generators_.draw_from(at::globalContext().defaultGenerator(recording_.device));
    generators_.check(call.source);
    add_use(call.uses, {table_.generator_view(), true, true});
    call.writes = true;
    call.varies = true;
  }

  bool vary(c10::ArrayRef<const c10::IValue> arguments) {
    bool found = false;
    for_each_tensor(arguments, [&](const at::Tensor& tensor, size_t, int32_t) {
      found |= !is_plain(tensor) || table_.varies(table_.buffer_of(tensor));
    });
    return found;
  }

  static bool need_gradients(c10::ArrayRef<const c10::IValue> arguments) {
    bool found = false;
    for_each_tensor(arguments, [&](const at::Tensor& tensor, size_t, int32_t) {
      found |= tensor.requires_grad();
    });
    return found && at::GradMode::is_enabled();
  }

  void note_absolute_offset(const OpenCall& call, const at::Tensor& tensor) {
    const auto input =
        std::find(input_buffers_.begin(), input_buffers_.end(), table_.buffer_of(tensor));
    if (input == input_buffers_.end()) return;
    const size_t index = input - input_buffers_.begin();
    recording_.input_offset_matters[index] = true;
    if (!input_is_whole_[index])
      refusal_.note(c10::toString(call.recorded.op.operator_name()),
                    "it reaches memory outside of an input", call.source);
  }

  void note_metadata_changes(OpenCall& call, c10::ArrayRef<const c10::IValue> arguments) {
    for_each_tensor(arguments, [&](const at::Tensor& tensor, size_t, int32_t) {
      shapes_.note_change(tensor, c10::toString(call.recorded.op.operator_name()), call.source);
    });
  }

  void end_call(const at::RecordFunction& function, OpenCall& call) {
    const c10::OperatorHandle& op = call.recorded.op;
    const OpSemantics& semantics = semantics_of(op);
    const std::vector<c10::IValue> outputs = function.outputs();
    if (outputs.size() != op.schema().returns().size()) {
      refusal_.note_raised(c10::toString(op.operator_name()), call.source);
      return;
    }
    for (const auto& [tensor, sizes] : call.sizes)
      if (tensor.sizes() != at::IntArrayRef(sizes) && tensor.storage().nbytes() > 0 &&
          at::IntArrayRef(sizes) != at::IntArrayRef({0}))
        refusal_.note(c10::toString(op.operator_name()),
                      "it changes the shape of a tensor of the caller", call.source);
    AllocationLog::Pause pause(*allocations_);
    for (InnerCopy& copy : call.copies) add_inner_copy(copy, call);
    std::vector<const void*> made;
    for_each_tensor(outputs, [&](const at::Tensor& tensor, size_t, int32_t) {
      if (tensor.has_storage()) made.push_back(tensor.storage().data());
    });
    call.copies.clear();
    allocations_->keep_inner(made);
    bool has_tensors = false;
    std::vector<BufferId> fresh;
    for_each_tensor(outputs, [&](const at::Tensor& tensor, size_t position, int32_t element) {
      if (const std::string why = why_not_plain(tensor); !why.empty()) {
        refusal_.note(c10::toString(op.operator_name()), "its result is " + why, call.source);
        return;
      }
      has_tensors = true;
      note_device(tensor);
      if (!table_.known(tensor))
        fresh.push_back(table_.add_buffer(tensor.storage(), Role::kIntermediate));
      const BufferId buffer = table_.buffer_of(tensor);
      if (std::find(fresh.begin(), fresh.end(), buffer) == fresh.end()) return;
      table_.set_varies(buffer, call.varies);
      const ViewId view = table_.view_of(tensor);
      call.recorded.results.push_back({{static_cast<uint32_t>(position), element, view},
                                       allocations_->index_since_mark(tensor.storage().data())});
      add_use(call.uses, {view, false, true});
    });
    if (semantics.only_allocates || semantics.only_changes_metadata) {
      for (BufferId buffer : fresh) table_.set_unwritten(buffer);
      for_each_tensor(outputs, [&](const at::Tensor& tensor, size_t, int32_t) {
        for (const CompositeCall* composite : composites_)
          if (composite->varies) table_.note_unfilled(tensor, composite->name);
      });
      return;
    }
    if (semantics.draws_random_numbers) generators_.note_states();
    for (const Use& use : call.uses)
      if (use.writes && call.varies)
        table_.set_varies(recording_.trace.views[use.view.index].buffer, true);
    const bool only_views = has_tensors && fresh.empty() && !call.writes;
    const bool only_numbers = !has_tensors && !outputs.empty() && !call.writes;
    if (only_views || only_numbers) return;
    for (const at::Tensor& tensor : call.unwritten)
      table_.make_constant(table_.buffer_of(tensor), tensor);
    recording_.trace.calls.push_back(
        {c10::toString(op.operator_name()), refusal_.module(), call.source, std::move(call.uses)});
    recording_.calls.push_back(std::move(call.recorded));
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

  std::shared_ptr<AllocationLog> allocations_;
  SavedState state_;
  Recording recording_;
  Refusal refusal_;
  BufferTable table_;
  GeneratorWatch generators_;
  ShapeWatch shapes_;
  LiveNumbers live_;
  std::unordered_set<const c10::TensorImpl*> carried_;  // leaves whose gradients others see to
  // By leaf: the tensor, and its gradient when it was seen first.
  std::unordered_map<const c10::TensorImpl*, std::pair<at::Tensor, at::Tensor>> gradients_;
  std::vector<BufferId> input_buffers_;
  const bool hears_cuda_ = listen_to_cuda_allocations();
  std::vector<bool> input_is_whole_;  // by input: it begins and ends where its storage does
  std::vector<const CompositeCall*> composites_;  // that are open
  OpenCall* open_call_ = nullptr;
  bool busy_ = false;
};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  Recorder* recorder = Recorder::current();
  return recorder ? recorder->start(function) : nullptr;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (Recorder* recorder = Recorder::current()) recorder->end(function, context);
}

// Makes a recorder hear the calls and allocations of this thread.
class Listening {
 public:
  explicit Listening(Recorder& recorder) {
    Recorder::current() = &recorder;
    listen_to_allocations(recorder.allocations());
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(on_start, on_end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~Listening() {
    at::removeCallback(handle_);
    listen_to_allocations(nullptr);
    Recorder::current() = nullptr;
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  at::CallbackHandle handle_;
};

// On CUDA a backward pass has a thread of its own, which the recorder would not hear.
class OneAutogradThread {
 public:
  explicit OneAutogradThread(bool wanted) {
    if (wanted) state().set_multithreading_enabled(false);
  }
  ~OneAutogradThread() { state().set_multithreading_enabled(before_); }
  OneAutogradThread(const OneAutogradThread&) = delete;
  OneAutogradThread& operator=(const OneAutogradThread&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  const bool before_ = state().get_multithreading_enabled();
};

bool tensors_are_not_real() {
  using c10::impl::TorchDispatchModeKey;
  using c10::impl::TorchDispatchModeTLS;
  return TorchDispatchModeTLS::get_mode(TorchDispatchModeKey::FAKE).has_value() ||
         TorchDispatchModeTLS::get_mode(TorchDispatchModeKey::PROXY).has_value() ||
         TorchDispatchModeTLS::get_mode(TorchDispatchModeKey::FUNCTIONAL).has_value();
}

}  // namespace

Recording record_calls(const TensorFunction& function, const std::vector<at::Tensor>& inputs,
                       const NamedTensors& names) {
  if (Recorder::current())
    throw UserError("a recording runs on this thread already: a recorded program cannot record");
  if (tensors_are_not_real())
    throw UserError("cannot record while the framework traces with tensors that have no values");
  std::vector<at::Tensor> copies;
  std::vector<bool> whole;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (const std::string why = why_not_plain(inputs[i]); !why.empty())
      throw Refused(message("cannot record: input ", i, " is ", why));
    copies.push_back(copy_with_strides(inputs[i]));
    whole.push_back(inputs[i].storage_offset() == 0 &&
                    copies[i].storage().nbytes() == inputs[i].storage().nbytes());
  }
  at::autocast::clear_cache();  // a cached cast would hide the parameter it came from
  install_planned_allocator();
  Recorder recorder(copies, std::move(whole), names);
  std::vector<at::Tensor> outputs;
  try {
    Listening listening(recorder);
    const OneAutogradThread one_thread(recorder.hears_cuda());
    outputs = function(copies);
  } catch (...) {
    recorder.refusal().rethrow();  // what came first explains what came after
    throw;
  }
  recorder.refusal().rethrow();
  Recording recording = recorder.finish(copies, outputs);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (recording.input_is_written[i] && describe(inputs[i]).may_overlap_itself())
      throw UserError(message("input ", i,
                              " is written, and more than one of its elements refers to "
                              "a single memory location: pass a copy (clone())"));
  return recording;
}

bool is_recording() {
  return Recorder::current() != nullptr;
}

void enter_module(std::string name) {
  if (Recorder* recorder = Recorder::current()) recorder->refusal().enter_module(std::move(name));
}

void leave_module() {
  if (Recorder* recorder = Recorder::current()) recorder->refusal().leave_module();
}

void announce_live(std::vector<LiveArgument> arguments) {
  if (Recorder* recorder = Recorder::current()) recorder->announce_live(std::move(arguments));
}

void join_outputs_from(size_t first) {
  if (Recorder* recorder = Recorder::current()) recorder->join_outputs_from(first);
}

void carry_gradients(const std::vector<at::Tensor>& leaves) {
  if (Recorder* recorder = Recorder::current()) recorder->carry_gradients(leaves);
}

bool existed_before_recording(const at::Tensor& tensor) {
  Recorder* recorder = Recorder::current();
  return recorder && recorder->existed_before(tensor);
}

void refuse_recording(const std::string& what, const std::string& why) {
  if (Recorder* recorder = Recorder::current()) recorder->refusal().note(what, why, source_here());
}

}  // namespace nimble
