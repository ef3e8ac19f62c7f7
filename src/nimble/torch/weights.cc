#include "nimble/torch/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <unordered_set>

#include "nimble/base/error.h"
#include "nimble/passes/rewrite.h"
#include "nimble/torch/memory_slot.h"
#include "nimble/torch/replay_guard.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Where a sample of so many bytes begins.
size_t sample_place(size_t bytes, size_t index) {
  constexpr size_t kBytes = sizeof(uint64_t);
  if (bytes < kBytes) return 0;
  return (bytes - kBytes) / kBytes * index / (ParameterWatch::kSamples - 1) * kBytes;
}

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

bool is_packed_operand(const Op& op, size_t operand, const Kernel& kernel) {
  if (kernel.packed_bytes() == 0) return false;
  if (const auto* conv = attributes_of<Convolution>(op))
    return operand >= 1 && operand <= (conv->bias ? 2u : 1u);
  if (const auto* both = attributes_of<SeparableConvolution>(op))
    return operand >= 1 && operand <= 2u + both->depthwise.bias + both->pointwise.bias;
  if (const auto* matmul = attributes_of<MatMul>(op))
    return matmul->constant_b && operand >= 1 && operand <= (matmul->bias ? 2u : 1u);
  return false;
}

// Runs the constant ops in order and packs each op's weights as soon as they are there, so that
// what is only packed lives shortly.
class WeightImage::Filler {
 public:
  explicit Filler(WeightImage& image)
      : image_(image),
        graph_(image.plan_.graph),
        pending_uses_(graph_.memories.size()),
        temporary_(graph_.memories.size()),
        ready_(graph_.memories.size(), true) {
    for (const Op& op : graph_.constant_ops)
      for (const Operand& operand : op.operands)
        if (operand.writes) ready_[operand.memory.index] = false;
    std::vector<bool> seen(image.packed_.size());
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      if (op.call.valid() || !image_.packed_[op.group] || seen[op.group]) continue;
      seen[op.group] = true;
      to_pack_.push_back(i);
    }
    for (const Op& op : graph_.constant_ops) count(op, 1);
    for (size_t i : to_pack_) count(graph_.ops[i], 1);
    waiting_.resize(graph_.memories.size());
    for (size_t i : to_pack_)
      for (const Operand& operand : graph_.ops[i].operands)
        if (!ready_[operand.memory.index]) waiting_[operand.memory.index].push_back(i);
  }

  void run() {
    for (size_t i : to_pack_) pack_if_ready(i);
    for (const Op& op : graph_.constant_ops) {
      compute(op);
      count(op, -1);
      for (const Operand& operand : op.operands) {
        if (!operand.writes) continue;
        ready_[operand.memory.index] = true;
        for (size_t i : waiting_[operand.memory.index]) pack_if_ready(i);
      }
    }
  }

 private:
  void count(const Op& op, int by) {
    for (const Operand& operand : op.operands) {
      int& uses = pending_uses_[operand.memory.index];
      uses += by;
      if (by < 0 && uses == 0) temporary_[operand.memory.index].reset();
    }
  }

  std::byte* address(MemoryId id) {
    const Memory& memory = graph_.memories[id.index];
    if (memory.role == Role::kExternal || memory.role == Role::kConstant)
      return static_cast<std::byte*>(
          const_cast<void*>(image_.plan_.recording.storages[memory.buffer.index].data()));
    if (memory.role != Role::kFolded) return nullptr;
    if (void* kept = image_.folded_[id.index]) return static_cast<std::byte*>(kept);
    PageMemory& block = temporary_[id.index];
    if (!block) block = allocate_pages(memory.bytes);
    return block.get();
  }

  void pack_if_ready(size_t index) {
    const Op& op = graph_.ops[index];
    for (const Operand& operand : op.operands)
      if (!ready_[operand.memory.index]) return;
    std::vector<void*> pointers;
    for (const Operand& operand : op.operands) {
      std::byte* base = address(operand.memory);
      pointers.push_back(base ? base + graph_.desc_of(operand).begin_byte() : nullptr);
    }
    image_.plan_.kernels[op.kernel.index].kernel->pack(pointers.data(), image_.packed_[op.group]);
    count(op, -1);
  }

  void compute(const Op& op) {
    if (op.call.valid()) {
      compute_by_framework(op);
      return;
    }
    std::vector<TensorDesc> descs;
    std::vector<void*> pointers;
    for (const Operand& operand : op.operands) {
      descs.push_back(graph_.desc_of(operand));
      pointers.push_back(address(operand.memory) + descs.back().begin_byte());
    }
    std::vector<KernelPtr> kernels = kernel_candidates(*op.attributes, descs);
    const KernelPtr kernel =
        kernels.empty() ? plain_loops(*op.attributes, descs) : std::move(kernels.front());
    const Part whole = kernel->work().whole();
    const PageMemory packed = allocate_pages(kernel->packed_bytes());
    const PageMemory scratch = allocate_pages(kernel->scratch_bytes(whole));
    kernel->pack(pointers.data(), packed.get());
    kernel->run({pointers.data(), packed.get(), scratch.get(), whole});
  }

  at::Tensor tensor(const Operand& operand) {
    const c10::Storage storage = unbound_storage(graph_.memories[operand.memory.index].bytes);
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
        at::DataPtr(address(operand.memory), at::kCPU));
    return make_tensor(graph_.desc_of(operand), storage);
  }

  void compute_by_framework(const Op& op) {
    const RecordedCall& call = image_.plan_.recording.calls[op.call.index];
    const auto tensor_for = [&](ViewId view, bool written) {
      for (const Operand& operand : op.operands)
        if (operand.view == view && operand.writes == written) return tensor(operand);
      // It only asks for the shape.
      return make_tensor(graph_.views[view.index].desc, unbound_storage(0));
    };
    torch::jit::Stack stack = call.arguments;
    for (const TensorSlot& slot : call.tensors) {
      at::Tensor argument = tensor_for(slot.view, false);
      if (slot.element < 0) {
        stack[slot.position] = std::move(argument);
        continue;
      }
      c10::List<c10::IValue> list = stack[slot.position].toList().copy();
      list.set(static_cast<size_t>(slot.element), std::move(argument));
      stack[slot.position] = std::move(list);
    }
    call.op.callBoxed(stack);
    for (const ResultSlot& result : call.results) {
      const c10::IValue& value = stack[result.position];
      const at::Tensor computed =
          result.element < 0 ? value.toTensor() : value.toListRef()[result.element].toTensor();
      tensor_for(result.view, true).copy_(computed);
    }
  }

  WeightImage& image_;
  const Graph& graph_;
  std::vector<int> pending_uses_;             // by memory
  std::vector<PageMemory> temporary_;         // by memory
  std::vector<bool> ready_;                   // by memory
  std::vector<size_t> to_pack_;               // ops, one of each group
  std::vector<std::vector<size_t>> waiting_;  // by memory: ops to pack
};

WeightImage::WeightImage(const Plan& plan)
    : plan_(plan), id_(next_id()), folded_(plan.graph.memories.size()) {
  const Graph& graph = plan.graph;
  uint32_t groups = 0;
  for (const Op& op : graph.ops) groups = std::max(groups, op.group + 1);
  packed_.resize(groups);
  // Addresses as offsets at first, as the size is not known before the end.
  std::vector<std::pair<std::byte**, size_t>> packed;
  std::vector<std::pair<void**, size_t>> folded;
  std::vector<bool> has_place(groups);
  std::vector<bool> is_taken(graph.memories.size());
  const auto take = [&](size_t bytes) {
    const size_t place = bytes_;
    bytes_ += aligned(bytes);
    return place;
  };
  for (const Op& op : graph.ops) {
    const Kernel* kernel = op.call.valid() ? nullptr : plan.kernels[op.kernel.index].kernel.get();
    if (kernel && !has_place[op.group] && kernel->packed_bytes() > 0) {
      packed.emplace_back(&packed_[op.group], take(kernel->packed_bytes()));
      has_place[op.group] = true;
    }
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const MemoryId id = op.operands[i].memory;
      const Memory& memory = graph.memories[id.index];
      if (memory.role != Role::kFolded || is_taken[id.index]) continue;
      if (kernel && is_packed_operand(op, i, *kernel)) continue;
      folded.emplace_back(&folded_[id.index], take(memory.bytes));
      is_taken[id.index] = true;
    }
  }
  memory_ = allocate_pages(bytes_);
  for (const auto& [address, place] : packed) *address = memory_.get() + place;
  for (const auto& [address, place] : folded) *address = memory_.get() + place;
}

WeightImage::~WeightImage() = default;

void WeightImage::fill() {
  const FrameworkDispatch dispatch;
  Filler(*this).run();
}

ParameterWatch::ParameterWatch(const Plan& plan, const std::vector<at::Tensor>& named) {
  const Graph& graph = plan.graph;
  std::vector<bool> is_source(plan.recording.storages.size());
  const auto note = [&](const Operand& operand) {
    const Memory& memory = graph.memories[operand.memory.index];
    if (memory.role == Role::kExternal) is_source[memory.buffer.index] = true;
  };
  for (const Op& op : graph.constant_ops)
    for (const Operand& operand : op.operands) note(operand);
  for (const Op& op : graph.ops)
    if (!op.call.valid())
      for (size_t i = 0; i < op.operands.size(); ++i)
        if (is_packed_operand(op, i, *plan.kernels[op.kernel.index].kernel)) note(op.operands[i]);

  std::unordered_set<const c10::StorageImpl*> storages;
  for (size_t i = 0; i < is_source.size(); ++i)
    if (is_source[i]) storages.insert(plan.recording.storages[i].unsafeGetStorageImpl());
  std::vector<at::Tensor> tensors = named;
  tensors.insert(tensors.end(), plan.recording.external_tensors.begin(),
                 plan.recording.external_tensors.end());
  std::unordered_set<const void*> seen;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    if (!storages.contains(storage) || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    Source& source = sources_.emplace_back();
    source.storage = storage;
    source.has_version = !tensor.is_inference();
    if (source.has_version) source.version = tensor.unsafeGetTensorImpl()->version_counter();
    source.uncounted_writes = uncounted_writes(storage);
    source.on_device = !tensor.device().is_cpu();
    if (!source.on_device) continue;
    for (size_t k = 0; k < kSamples; ++k) {
      const size_t bytes = std::min(storage->nbytes(), sizeof(uint64_t));
      const auto begin = static_cast<int64_t>(sample_place(storage->nbytes(), k));
      device_bytes_[k].push_back(
          bytes_of_storage(tensor.storage()).narrow(0, begin, static_cast<int64_t>(bytes)));
    }
  }
}

uint64_t ParameterWatch::sample(const c10::StorageImpl& storage, size_t index) {
  const size_t bytes = storage.nbytes();
  uint64_t value = 0;
  if (bytes < sizeof value) {
    std::memcpy(&value, storage.data(), bytes);
    return value;
  }
  std::memcpy(&value, static_cast<const char*>(storage.data()) + sample_place(bytes, index),
              sizeof value);
  return value;
}

std::vector<uint64_t> ParameterWatch::device_samples(size_t index) const {
  std::vector<uint64_t> values;
  if (device_bytes_[index].empty()) return values;
  const FrameworkDispatch dispatch;
  const at::Tensor host = at::cat(device_bytes_[index]).cpu();
  const auto* next = host.const_data_ptr<uint8_t>();
  for (const at::Tensor& bytes : device_bytes_[index]) {
    const auto count = static_cast<size_t>(bytes.numel());
    std::memcpy(&values.emplace_back(), next, count);
    next += count;
  }
  return values;
}

std::vector<ParameterWatch::State> ParameterWatch::states() const {
  std::vector<State> states(sources_.size());
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    if (source.has_version) states[i].version = source.version.current_version();
    states[i].uncounted_writes = source.uncounted_writes->load(std::memory_order_relaxed);
    states[i].data = source.storage->data();
    if (states[i].data && !source.on_device)
      for (size_t k = 0; k < kSamples; ++k) states[i].samples[k] = sample(*source.storage, k);
  }
  for (size_t k = 0; k < kSamples; ++k) {
    const std::vector<uint64_t> samples = device_samples(k);
    for (size_t i = 0, next = 0; next < samples.size(); ++i)
      if (sources_[i].on_device) states[i].samples[k] = samples[next++];
  }
  return states;
}

bool ParameterWatch::changed_since(const std::vector<State>& states, bool all_samples) const {
  const size_t which = next_sample_.fetch_add(1, std::memory_order_relaxed) % kSamples;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    const State& state = states[i];
    if (source.has_version && source.version.current_version() != state.version) return true;
    if (source.uncounted_writes->load(std::memory_order_relaxed) != state.uncounted_writes)
      return true;
    if (source.storage->data() != state.data) return true;
    if (!state.data || source.on_device) continue;
    for (size_t k = 0; k < kSamples; ++k)
      if ((all_samples || k == which) && sample(*source.storage, k) != state.samples[k])
        return true;
  }
  for (size_t k = 0; k < kSamples; ++k) {
    if (!all_samples && k != which) continue;
    const std::vector<uint64_t> samples = device_samples(k);
    for (size_t i = 0, next = 0; next < samples.size(); ++i)
      if (sources_[i].on_device && samples[next++] != states[i].samples[k]) return true;
  }
  return false;
}

Weights::Weights(const Plan& plan, const std::vector<at::Tensor>& named)
    : plan_(plan), watch_(plan, named), current_(std::make_shared<Version>(plan)) {
  fill(*current_);
}

void Weights::refresh() {
  if (!watch_.changed_since(current_->parameters, /*all_samples=*/true)) return;
  if (current_.use_count() == 1) {
    fill(*current_);
    return;
  }
  auto version = std::make_shared<Version>(plan_);
  fill(*version);
  current_ = std::move(version);
}

// The state is taken first, so that a change while the image is made shows at the next call, and
// kept last: what could not be made stays stale.
void Weights::fill(Version& version) const {
  std::vector<ParameterWatch::State> parameters = watch_.states();
  version.image.fill();
  version.parameters = std::move(parameters);
}

}  // namespace nimble
