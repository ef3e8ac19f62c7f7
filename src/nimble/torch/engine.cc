#include "nimble/torch/engine.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_set>

#include "nimble/base/error.h"
#include "nimble/schedule/bounded.h"
#include "nimble/schedule/verify.h"
#include "nimble/torch/intra_op.h"
#include "nimble/torch/prepare.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {
namespace {

// One lock for the idle lists of all engines, so that fork() can hold it: in the child it is free.
std::mutex& idle_lock() {
  static auto& mutex = *new std::mutex;
  static const int registered = pthread_atfork(
      [] { idle_lock().lock(); }, [] { idle_lock().unlock(); }, [] { idle_lock().unlock(); });
  (void)registered;
  return mutex;
}

struct Bytes {
  const char* begin;
  const char* end;
  bool overlaps(const Bytes& other) const { return begin < other.end && other.begin < end; }
};

Bytes bytes_of(const at::Tensor& tensor) {
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  if (tensor.is_contiguous()) return {begin, begin + tensor.nbytes()};
  const TensorDesc desc = describe(tensor);
  return {begin, begin + (desc.end_byte() - desc.begin_byte())};
}

// What a replay can reach: an input, or memory of the program.
struct Reach {
  Bytes bytes;
  bool written;
  int input;  // -1: memory of the program
};

[[noreturn]] void refuse_overlap(const Reach& a, const Reach& b) {
  if (a.input < 0 || b.input < 0)
    throw UserError(message("input ", std::max(a.input, b.input),
                            " shares memory with a tensor that the program uses "
                            "besides its inputs, and one of them is written: pass a copy "
                            "(clone())"));
  const Reach& written = a.written ? a : b;
  const Reach& other = a.written ? b : a;
  throw UserError(message("inputs ", written.input, " and ", other.input,
                          " share memory and the program writes input ", written.input,
                          ": pass a copy (clone()) of one of them"));
}

}  // namespace

AmbientState AmbientState::now() {
  AmbientState state;
  state.autocast = at::autocast::is_autocast_enabled(at::kCPU);
  if (state.autocast) state.autocast_dtype = at::autocast::get_autocast_dtype(at::kCPU);
  state.cuda_autocast = at::autocast::is_autocast_enabled(at::kCUDA);
  if (state.cuda_autocast) state.cuda_autocast_dtype = at::autocast::get_autocast_dtype(at::kCUDA);
  state.default_dtype = c10::get_default_dtype_as_scalartype();
  return state;
}

std::string AmbientState::to_string() const {
  return message("autocast ", autocast ? c10::toString(autocast_dtype) : "off",
                 cuda_autocast ? message(" (CUDA ", c10::toString(cuda_autocast_dtype), ")") : "",
                 ", default dtype ", c10::toString(default_dtype));
}

// An instance for the time of one call.
class Engine::Borrowed {
 public:
  explicit Borrowed(Engine& engine) : engine_(engine) {
    {
      std::lock_guard lock(idle_lock());
      if (!engine_.idle_.empty()) {
        instance_ = std::move(engine_.idle_.back());
        engine_.idle_.pop_back();
      }
      if (engine_.weights_) weights_ = engine_.weights_->current();
    }
    if (!instance_)
      instance_ = std::make_unique<Instance>(*engine_.plan_, engine_.planned_,
                                             engine_.options_.borrowed_outputs);
    if (weights_) use_weights();
  }
  ~Borrowed() {
    std::lock_guard lock(idle_lock());
    engine_.idle_.push_back(std::move(instance_));
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  Instance& operator*() const { return *instance_; }

 private:
  void use_weights() {
    Weights& weights = *engine_.weights_;
    if (weights.is_stale(*weights_)) {
      std::lock_guard lock(idle_lock());
      weights_.reset();
      weights.refresh();
      weights_ = weights.current();
    }
    instance_->use(weights_->image);
  }

  Engine& engine_;
  std::unique_ptr<Instance> instance_;
  std::shared_ptr<const Weights::Version> weights_;
};

Engine::Engine(const TensorFunction& function, const std::vector<at::Tensor>& inputs,
               const Options& options, const NamedTensors& names, const LiveFunction& live)
    : options_(options), ambient_(AmbientState::now()) {
  if (options_.threads <= 0) options_.threads = at::get_num_threads();
  Prepared prepared = prepare(function, inputs, options_, names, live);
  plan_ = std::move(prepared.plan);
  weights_ = std::move(prepared.weights);
  recorded_graph_ = std::move(prepared.recorded_graph);
  planned_ = std::move(prepared.schedule);
  report_ = prepared.report;
  device_ = std::move(prepared.device);
  idle_.reserve(16);
  idle_.push_back(std::move(prepared.instance));

  const Recording& recording = plan_->recording;
  std::unordered_set<const c10::StorageImpl*> used;
  for (const c10::Storage& storage : recording.storages)
    if (storage) used.insert(storage.unsafeGetStorageImpl());
  for (const auto& [name, tensor] : names)
    if (tensor.defined() && tensor.has_storage() &&
        used.contains(tensor.storage().unsafeGetStorageImpl()))
      watch(name, tensor);
  std::unordered_set<const c10::TensorImpl*> named;
  for (const Watched& watched : watched_) named.insert(watched.tensor._unsafe_get_target());
  for (size_t i = 0; i < recording.external_tensors.size(); ++i) {
    const at::Tensor& tensor = recording.external_tensors[i];
    if (tensor.defined() && !named.contains(tensor.unsafeGetTensorImpl()))
      watch(recording.trace.buffers[i].name, tensor);
  }
  external_is_written_.resize(recording.storages.size());
  for (size_t i = 0; i < recording.storages.size(); ++i)
    external_is_written_[i] =
        recording.storages[i] &&
        std::any_of(
            recording.written_externals.begin(), recording.written_externals.end(),
            [&](const at::Tensor& t) { return t.storage().is_alias_of(recording.storages[i]); });
  plan_->recording.release_tensors();
  output_views_input_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    for (const Port& output : plan_->graph.outputs)
      if (output.memory == plan_->graph.inputs[i].memory &&
          output.view != plan_->graph.inputs[i].view)
        output_views_input_[i] = true;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (recording.input_reshaped[i]) output_views_input_[i] = true;
  const auto& written = recording.input_is_written;
  writes_caller_memory_ = std::find(written.begin(), written.end(), true) != written.end() ||
                          !recording.written_externals.empty();
  check_overlaps(inputs);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (output_views_input_[i]) check_layout(i, inputs[i]);
}

std::vector<at::Tensor> Engine::run(c10::ArrayRef<at::Tensor> inputs, c10::ArrayRef<double> live) {
  if (is_recording()) {
    const std::string why = "its tasks are not seen: call the original model there";
    refuse_recording("a prepared program inside of a program that is being recorded", why);
    throw Refused("cannot record a call of a prepared program: " + why);
  }
  check(inputs);
  NIMBLE_ASSERT(live.size() == plan_->recording.live_values.size());
  if (device_) return device_->run(inputs, live);
  Borrowed instance(*this);
  (*instance).set_live(live);
  return (*instance).run(inputs);
}

std::vector<TaskTime> Engine::run_timed(c10::ArrayRef<at::Tensor> inputs) {
  NIMBLE_ASSERT(!device_);
  check(inputs);
  Borrowed instance(*this);
  return (*instance).run_timed(inputs);
}

void Engine::check(c10::ArrayRef<at::Tensor> inputs) const {
  if (inputs.size() != plan_->graph.inputs.size())
    throw UserError(message("prepared for ", plan_->graph.inputs.size(), " input tensors, got ",
                            inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) check_input(i, inputs[i]);
  if (writes_caller_memory_) check_overlaps(inputs);
  if (const std::string moved = moved_tensor(); !moved.empty())
    throw UserError(message("the model changed since it was prepared: '", moved,
                            "' was given other memory or another shape; call prepare() again"));
  if (const AmbientState now = AmbientState::now(); now != ambient_)
    throw UserError(message("prepared with ", ambient_.to_string(), ", called with ",
                            now.to_string(), ": call it under the same settings or prepare again"));
}

void Engine::check_input(size_t index, const at::Tensor& input) const {
  const TensorDesc& desc = plan_->graph.views[plan_->graph.inputs[index].view.index].desc;
  const Recording& recording = plan_->recording;
  const BufferId buffer = recording.trace.views[recording.trace.inputs[index].index].buffer;
  const c10::Device device = recording.devices[buffer.index];
  if (!is_plain(input) || input.device() != device) {
    throw UserError(message(
        "input ", index, ": prepared for ", desc.to_string(), " on ",
        device.is_cpu() ? "the CPU" : device.str(), ", got ",
        is_plain(input) ? "a tensor on device " + input.device().str() : why_not_plain(input)));
  }
  if (input.sizes() != at::IntArrayRef(desc.sizes) ||
      static_cast<int8_t>(input.scalar_type()) != desc.dtype.code)
    throw UserError(message("input ", index, ": prepared for ", desc.to_string(), ", got ",
                            describe(input).to_string(),
                            ": call prepare() with an example like it, or use nimble.compile, "
                            "which prepares itself for new shapes"));
  if (input.requires_grad() && at::GradMode::is_enabled())
    throw UserError(message("input ", index,
                            " requires grad, and this was prepared for inference: detach it or "
                            "call under torch.no_grad()"));
  if (plan_->recording.input_offset_matters[index] && input.storage_offset() != 0)
    throw UserError(message("input ", index,
                            " begins inside of its memory, and the program looks "
                            "at that memory from its beginning (as_strided): pass a copy "
                            "(clone())"));
  if (output_views_input_[index]) check_layout(index, input);
}

void Engine::check_layout(size_t index, const at::Tensor& input) const {
  const TensorDesc& desc = plan_->graph.views[plan_->graph.inputs[index].view.index].desc;
  const bool same_strides = input.strides() == at::IntArrayRef(desc.strides);
  if (!same_strides && describe(input).may_overlap_itself())
    throw UserError(message("input ", index,
                            " is expanded (several of its elements are one in memory), and an "
                            "output is a view of it: pass a copy (clone())"));
  if (!same_strides)
    throw UserError(message("input ", index, ": prepared with strides ",
                            at::IntArrayRef(desc.strides), ", got ", input.strides(),
                            "; an output is a view of it, so the strides must be the same"));
  if (input.is_conj() != desc.conjugate || input.is_neg() != desc.negative)
    throw UserError(message("input ", index,
                            " is a conjugate or negative view and was not when it was prepared, or "
                            "the other way round; an output is a view of it: pass a copy "
                            "(resolve_conj(), resolve_neg())"));
}

// What the program writes must not be seen through another input: the recording had them apart.
void Engine::check_overlaps(c10::ArrayRef<at::Tensor> inputs) const {
  const Recording& recording = plan_->recording;
  std::vector<Reach> reached;
  reached.reserve(inputs.size() + recording.storages.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    reached.push_back({bytes_of(inputs[i]), recording.input_is_written[i], static_cast<int>(i)});
  for (size_t i = 0; i < recording.storages.size(); ++i) {
    const c10::Storage& storage = recording.storages[i];
    if (!storage || !storage.data()) continue;
    const auto* begin = static_cast<const char*>(storage.data());
    reached.push_back({{begin, begin + storage.nbytes()}, external_is_written_[i], -1});
  }
  std::sort(reached.begin(), reached.end(),
            [](const Reach& a, const Reach& b) { return a.bytes.begin < b.bytes.begin; });
  for (size_t i = 0; i < reached.size(); ++i)
    for (size_t j = i + 1; j < reached.size(); ++j) {
      const Reach& a = reached[i];
      const Reach& b = reached[j];
      if (b.bytes.begin >= a.bytes.end) break;
      if (!a.bytes.overlaps(b.bytes) || !(a.written || b.written)) continue;
      if (a.input >= 0 || b.input >= 0) refuse_overlap(a, b);
    }
}

void Engine::watch(const std::string& name, const at::Tensor& tensor) {
  watched_.push_back(
      {name.empty() ? "a tensor that the program uses" : name,
       c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>(tensor.getIntrusivePtr()),
       tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.sizes().vec(),
       tensor.strides().vec()});
}

std::string Engine::moved_tensor() const {
  for (const Watched& watched : watched_) {
    if (watched.tensor.expired()) continue;  // its memory is still ours
    const c10::TensorImpl* impl = watched.tensor._unsafe_get_target();
    if (!impl->has_storage() || impl->unsafe_storage().unsafeGetStorageImpl() != watched.storage ||
        impl->storage_offset() != watched.offset ||
        impl->sizes() != at::IntArrayRef(watched.sizes) ||
        impl->strides() != at::IntArrayRef(watched.strides))
      return watched.name;
  }
  const auto& storages = plan_->recording.storages;
  for (size_t i = 0; i < storages.size(); ++i)
    if (storages[i] && storages[i].nbytes() < plan_->recording.trace.buffers[i].bytes)
      return plan_->recording.trace.buffers[i].name;
  return device_ ? device_->moved_tensor() : "";
}

size_t Engine::weight_bytes() const {
  if (device_) return device_->report().folded_bytes;
  return weights_ ? weights_->current()->image.bytes() : 0;
}

size_t Engine::peak_bytes() const {
  const Graph& graph = plan_->graph;
  size_t fixed = schedule().arena_bytes;
  std::vector<int> last_use(graph.memories.size(), -1);
  for (size_t i = 0; i < graph.ops.size(); ++i)
    for (const Operand& operand : graph.ops[i].operands)
      last_use[operand.memory.index] = static_cast<int>(i);
  for (size_t m = 0; m < graph.memories.size(); ++m)
    if (graph.memories[m].is_output && graph.memories[m].role == Role::kIntermediate &&
        !plan_->adopted[m] && !schedule().placements[m].in_arena)
      fixed += graph.memories[m].bytes;
  size_t held = 0;
  size_t most = 0;
  std::vector<bool> live(graph.memories.size());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (const Operand& operand : graph.ops[i].operands) {
      const size_t m = operand.memory.index;
      if (!plan_->adopted[m] || live[m]) continue;
      live[m] = true;
      held += graph.memories[m].bytes;
    }
    most = std::max(most, held);
    for (const Operand& operand : graph.ops[i].operands) {
      const size_t m = operand.memory.index;
      if (!live[m] || graph.memories[m].is_output || last_use[m] != static_cast<int>(i)) continue;
      live[m] = false;
      held -= graph.memories[m].bytes;
    }
  }
  return fixed + most;
}

std::vector<at::Tensor> Recorded::operator()(const std::vector<at::Tensor>& inputs) const {
  return engine_->run(inputs);
}

Recorded record(const TensorFunction& function, const std::vector<at::Tensor>& inputs,
                const Options& options) {
  return Recorded(std::make_shared<Engine>(function, inputs, options, NamedTensors{}));
}

}  // namespace nimble
