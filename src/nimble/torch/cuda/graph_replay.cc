#include "nimble/torch/cuda/graph_replay.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "nimble/base/error.h"
#include "nimble/graph/reorder_ops.h"
#include "nimble/schedule/capped_streams.h"
#include "nimble/schedule/launch_order.h"
#include "nimble/schedule/verify.h"
#include "nimble/torch/cuda.h"
#include "nimble/torch/cuda/issue.h"
#include "nimble/torch/cuda/streams.h"
#include "nimble/torch/gpu_work.h"
#include "nimble/torch/replay_guard.h"
#include "nimble/torch/results.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {
namespace {

// Ops found one by one that cannot be captured.
constexpr size_t kMostAttempts = 64;

std::string first_line_of(const std::exception_ptr& error) {
  std::string text;
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    text = e.what_without_backtrace();
  } catch (const std::exception& e) {
    text = e.what();
  }
  return text.substr(0, text.find('\n'));
}

// Whether an op failed because of the capture: by one of CUDA's errors for that, or by a check of
// its own. A device that failed, or has no memory left, is another matter.
bool is_about_capture(const OpFailed& failure) {
  try {
    std::rethrow_exception(failure.error);
  } catch (const c10::OutOfMemoryError&) {
    return false;
  } catch (const c10::AcceleratorError& e) {
    return e.get_error_code() >= cudaErrorStreamCaptureUnsupported &&
           e.get_error_code() <= cudaErrorStreamCaptureWrongThread;
  } catch (const c10::Error&) {
    return true;
  } catch (const std::exception&) {
    return failure.ended_capture;  // an op that is written in Python
  }
}

void forget_workspaces(c10::DeviceIndex device, size_t streams) {
  for (size_t i = 0; i < streams; ++i)
    at::cuda::clearCublasWorkspacesForStream(own_stream(device, i));
}

}  // namespace

GraphReplay::GraphReplay(const CudaProgram& program)
    : plan_(program.plan),
      device_(plan_.recording.device.index()),
      borrowed_outputs_(program.options.borrowed_outputs),
      constants_(program.constants),
      pool_(program.options.graph_memory ? program.options.graph_memory->pool_of(device_)
                                         : std::make_shared<GraphPool>(device_)) {
  const c10::cuda::CUDAGuard guard(device_);
  const FrameworkDispatch dispatch;
  for (size_t attempt = 0;; ++attempt) {
    cut(program.options.strict);
    try {
      if (cost_ns_.empty()) measure_ops(program);
      schedule(program);
      capture(program);
      break;
    } catch (const OpFailed& failure) {
      graphs_.clear();
      memory_.reset();
      if (attempt == kMostAttempts) std::rethrow_exception(failure.error);
      put_outside(failure);
    }
  }
  const Recording& recording = plan_.recording;
  for (size_t i = 0; i < recording.storages.size(); ++i)
    if (recording.storages[i]) addresses_.emplace_back(i, recording.storages[i].data());
  note_report();
}

GraphReplay::~GraphReplay() {
  try {
    pool_->idle.synchronize();
  } catch (const c10::Error&) {
    // The device failed, or the process ends: nothing runs any more.
  }
}

std::string GraphReplay::why_outside(const Op& op) const {
  if (const auto found = outside_.find(op.call); found != outside_.end()) return found->second;
  const Recording& recording = plan_.recording;
  const RecordedCall& call = recording.calls[op.call.index];
  if (!call.live.empty())
    return "a graph would freeze a number that it is given, as a learning rate is (an optimizer "
           "with fused=True has one such op)";
  bool on_device = false;
  std::string why;
  const auto look_at = [&](const TensorSlot& slot, bool is_result) {
    const View& view = recording.trace.views[slot.view.index];
    if (recording.devices[view.buffer.index].is_cuda()) {
      on_device = true;
      return;
    }
    const bool frozen = recording.trace.buffers[view.buffer.index].role == Role::kConstant &&
                        view.desc.sizes.empty();
    if (is_result || !frozen)
      why = is_result ? "its result is on the CPU" : "it reads a tensor on the CPU";
  };
  for (const TensorSlot& slot : call.tensors) look_at(slot, false);
  for (const ResultSlot& slot : call.results) look_at(slot, true);
  return on_device ? why : "it runs on the CPU";
}

void GraphReplay::cut(bool strict) {
  Graph& graph = plan_.graph;
  std::vector<bool> capturable;
  for (const Op& op : graph.ops) {
    const std::string why = why_outside(op);
    capturable.push_back(why.empty());
    if (!why.empty() && strict)
      throw Refused(message("cannot capture ", op.name, " (", op.source, "): ", why));
  }
  segments_ = cut_into_segments(graph, capturable);
}

// One after another, on one stream.
void GraphReplay::measure_ops(const CudaProgram& program) {
  const Graph& graph = plan_.graph;
  use_streams(single_stream(graph), std::vector<double>(graph.ops.size(), 0.0), DropRule::kClock);
  std::vector<double> cost_ns(plan_.recording.calls.size(), 0);
  std::lock_guard lock(own_streams_lock());
  memory_ = std::make_unique<ProgramMemory>(plan_, segments_);
  copy_inputs(program.inputs);
  for (size_t s = 0; s < segments_.size(); ++s) {
    if (!segments_[s].captured) {
      issue_alone(segments_[s], plan_.recording.live_values);
      continue;
    }
    const std::vector<double> ns = measure(program_of(s), *memory_, plan_.recording.live_values);
    for (size_t i = 0; i < ns.size(); ++i)
      cost_ns[graph.ops[segments_[s].begin + i].call.index] = ns[i];
  }
  c10::cuda::device_synchronize();
  memory_.reset();
  forget_workspaces(device_, 1);
  cost_ns_ = std::move(cost_ns);
}

std::vector<double> GraphReplay::op_costs() const {
  std::vector<double> costs;
  for (const Op& op : plan_.graph.ops) costs.push_back(cost_ns_[op.call.index]);
  return costs;
}

void GraphReplay::schedule(const CudaProgram& program) {
  const Options& options = program.options;
  Graph& graph = plan_.graph;
  const size_t most =
      options.streams > 0 ? static_cast<size_t>(options.streams) : kMostDeviceStreams;
  const DropRule rule = options.keep_memory ? DropRule::kNever : DropRule::kClock;
  if (most == 1) {
    use_streams(single_stream(graph), op_costs(), rule);
    return;
  }
  if (program.launch_order)
    reorder_ops(graph, launch_order(dependency_dag(graph, barriers_between(graph, segments_)),
                                    op_costs(), ops_that_compute(graph)));
  const std::vector<double> costs = op_costs();
  const Dag dag = dependency_dag(graph, barriers_between(graph, segments_));
  use_streams(
      urgent_first(dag, costs, cap_streams(dag, assign_unbounded_streams(dag), most, costs)), costs,
      rule);
}

void GraphReplay::use_streams(const StreamAssignment& assignment, const std::vector<double>& costs,
                              DropRule rule) {
  const Graph& graph = plan_.graph;
  planned_.built =
      build_schedule(graph, assignment, costs, std::vector<bool>(graph.memories.size(), true),
                     {.extra_edges = barriers_between(graph, segments_)});
  const std::vector<std::string> faults = verify_schedule(planned_.built.schedule);
  NIMBLE_ASSERT(faults.empty(), faults.front());
  orders_.clear();
  for (const Segment& segment : segments_) {
    const Schedule part = schedule_of(planned_.built.schedule, segment);
    orders_.push_back(plan_capture(part, droppable(segment), rule));
  }
}

// Nobody but these ops needs it.
std::vector<bool> GraphReplay::droppable(const Segment& segment) const {
  const Graph& graph = plan_.graph;
  std::vector<bool> may_drop;
  for (const Memory& memory : graph.memories)
    may_drop.push_back(memory.role == Role::kIntermediate && !memory.is_output && segment.captured);
  for (uint32_t i = 0; i < graph.ops.size(); ++i)
    for (const Operand& operand : graph.ops[i].operands)
      if (i < segment.begin || i >= segment.end) may_drop[operand.memory.index] = false;
  return may_drop;
}

SegmentProgram GraphReplay::program_of(size_t segment) const {
  return {plan_, segments_[segment], orders_[segment], device_};
}

void GraphReplay::capture(const CudaProgram& program) {
  std::lock_guard lock(own_streams_lock());
  const std::vector<double>& live = plan_.recording.live_values;
  memory_ = std::make_unique<ProgramMemory>(plan_, segments_);
  copy_inputs(program.inputs);
  const size_t streams = planned_.built.schedule.streams.size();
  for (size_t s = 0; s < segments_.size(); ++s) {
    if (segments_[s].captured)
      warm_up(program_of(s), *memory_, live);
    else
      issue_alone(segments_[s], live);
  }
  c10::cuda::device_synchronize();
  memory_->drop_all();
  forget_workspaces(device_, streams);
  c10::cuda::CUDACachingAllocator::emptyCache();
  for (size_t s = 0; s < segments_.size(); ++s) {
    if (!segments_[s].captured) {
      graphs_.push_back(nullptr);
      continue;
    }
    graphs_.push_back(std::make_unique<SegmentGraph>(program_of(s), *memory_, live, pool_->id()));
    if (program.options.keep_memory) continue;
    const std::vector<bool> may_drop = droppable(segments_[s]);
    for (size_t m = 0; m < may_drop.size(); ++m)
      if (may_drop[m]) memory_->drop(MemoryId(m));
  }
  for (size_t m = 0; m < plan_.graph.memories.size(); ++m)
    NIMBLE_ASSERT(!plan_.graph.memories[m].is_output || (*memory_)[MemoryId(m)],
                  "an output was dropped");
  // They are of the graphs' pool now.
  forget_workspaces(device_, streams);
}

void GraphReplay::put_outside(const OpFailed& failure) {
  const Op& op = plan_.graph.ops[failure.op.index];
  if (!is_about_capture(failure) || outside_.contains(op.call))
    std::rethrow_exception(failure.error);
  outside_[op.call] = "it cannot be captured: " + first_line_of(failure.error);
}

void GraphReplay::issue_alone(const Segment& segment, c10::ArrayRef<double> live) {
  for (uint32_t i = segment.begin; i < segment.end; ++i)
    issue(plan_, plan_.graph.ops[i], *memory_, live);
}

void GraphReplay::copy_inputs(c10::ArrayRef<at::Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor place = memory_->at(plan_.graph.inputs[i]);
    if (place.const_data_ptr() != inputs[i].const_data_ptr())
      place.copy_(inputs[i], /*non_blocking=*/true);
  }
}

std::vector<at::Tensor> GraphReplay::run(c10::ArrayRef<at::Tensor> inputs,
                                         c10::ArrayRef<double> live) {
  const c10::cuda::CUDAGuard guard(device_);
  const FrameworkDispatch dispatch;
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None)
    throw UserError(
        "a prepared program cannot be called inside of a CUDA graph capture: capture "
        "the original model there");
  std::lock_guard lock(pool_->mutex);
  pool_->idle.block(stream);
  // What was issued so far is waited for, whatever happens.
  const auto note_end = [this, &stream](void*) { pool_->idle.record(stream); };
  std::unique_ptr<void, decltype(note_end)> at_end(this, note_end);
  if (constants_) constants_->refresh();
  copy_inputs(inputs);
  for (size_t s = 0; s < segments_.size(); ++s) {
    if (graphs_[s])
      graphs_[s]->launch();
    else
      issue_alone(segments_[s], live);
  }
  return hand_out(inputs);
}

std::vector<at::Tensor> GraphReplay::hand_out(c10::ArrayRef<at::Tensor> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (plan_.recording.input_is_written[i])
      inputs[i].copy_(memory_->at(plan_.graph.inputs[i]), /*non_blocking=*/true);
  std::map<MemoryId, c10::Storage> fresh;
  return collect_results(plan_, inputs, [&](MemoryId memory) {
    const c10::Storage& ours = (*memory_)[memory];
    if (borrowed_outputs_) return ours;
    auto [found, is_new] = fresh.try_emplace(memory);
    if (is_new) found->second = bytes_of_storage(ours).clone().storage();
    return found->second;
  });
}

std::string GraphReplay::moved_tensor() const {
  const Recording& recording = plan_.recording;
  for (const auto& [buffer, address] : addresses_)
    if (recording.storages[buffer].data() != address)
      return recording.trace.buffers[buffer].name.empty() ? "a tensor that the program uses"
                                                          : recording.trace.buffers[buffer].name;
  return "";
}

void GraphReplay::note_report() {
  for (const auto& graph : graphs_) {
    if (!graph) continue;
    ++report_.graphs;
    report_.graph_nodes += graph->nodes();
  }
  report_.pool_bytes = pool_->bytes();
  if (constants_) report_.folded_bytes = constants_->bytes();
  for (const Op& op : plan_.graph.ops)
    if (const std::string why = why_outside(op); !why.empty())
      report_.outside.push_back(
          message(op.name, op.source.empty() ? "" : " (" + op.source + ")", ": ", why));
}

bool cuda_is_built() {
  return true;
}

std::string why_no_cuda() {
  return "";
}

std::unique_ptr<DeviceReplay> capture_on_cuda(const CudaProgram& program) {
  return std::make_unique<GraphReplay>(program);
}

}  // namespace nimble
