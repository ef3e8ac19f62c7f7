#include "nimble/torch/cuda/segment_graph.h"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <limits>

#include "nimble/base/error.h"
#include "nimble/torch/cuda/allocations.h"
#include "nimble/torch/cuda/captured_order.h"
#include "nimble/torch/cuda/issue.h"
#include "nimble/torch/cuda/streams.h"

namespace nimble {
namespace {

using c10::cuda::CUDAEvent;
using c10::cuda::CUDAStream;

// The memory that an op was given, and what it allocated.
std::vector<DeviceTouch> touches_of(const Plan& plan, const Op& op, const ProgramMemory& memory,
                                    const HeardBlocks& heard) {
  std::vector<DeviceTouch> touches;
  for (const Operand& operand : op.operands) {
    const c10::Storage& storage = memory[operand.memory];
    if (!storage || !storage.device().is_cuda() || !(operand.reads || operand.writes)) continue;
    const TensorDesc& desc = plan.graph.desc_of(operand);
    const auto begin = reinterpret_cast<uint64_t>(storage.data());
    touches.push_back({begin + static_cast<uint64_t>(desc.begin_byte()),
                       begin + static_cast<uint64_t>(desc.end_byte()), operand.writes});
  }
  for (const AllocatedBlock& block : heard.blocks()) {
    const auto begin = reinterpret_cast<uint64_t>(block.address);
    touches.push_back({begin, begin + block.bytes, true});
  }
  return touches;
}

bool goes_on(const CUDAStream& capturing) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(capturing, &status));
  return status == cudaStreamCaptureStatusActive;
}

// `around(place, op, stream, issue)` is called for every op, by its place in the segment, and has
// to issue it.
template <class Around>
void issue_on_streams(const SegmentProgram& program, ProgramMemory& memory,
                      c10::ArrayRef<double> live, const Around& around) {
  const CUDAStream origin = own_stream(program.device, 0);
  const bool capturing = goes_on(origin);
  std::vector<CUDAEvent> ended(program.segment.end - program.segment.begin);
  std::vector<bool> is_waited_for(ended.size());
  for (const CaptureStep& step : program.order.steps)
    for (TaskId task : step.waits) is_waited_for[task.index] = true;
  CUDAEvent begun;
  begun.record(origin);
  for (const CaptureStep& step : program.order.steps) {
    const OpId id(program.segment.begin + step.task.index);
    const Op& op = program.plan.graph.ops[id.index];
    const CUDAStream stream = own_stream(program.device, step.stream.index);
    const c10::cuda::CUDAStreamGuard guard(stream);
    if (step.forks) begun.block(stream);
    for (TaskId task : step.waits) ended[task.index].block(stream);
    for (MemoryId dropped : step.drops) memory.drop(dropped);
    try {
      around(step.task.index, op, stream, [&] { issue(program.plan, op, memory, live); });
    } catch (...) {
      throw OpFailed(id, std::current_exception(), capturing && !goes_on(stream));
    }
    if (is_waited_for[step.task.index]) ended[step.task.index].record(stream);
  }
  for (StreamId joined : program.order.joins) {
    CUDAEvent last;
    last.record(own_stream(program.device, joined.index));
    last.block(origin);
  }
}

// Of the host, for one op; more is only waited for.
constexpr double kIssueNs = 50e3;
// Fewer than a device's queue takes before the host has to wait for it.
constexpr uint32_t kOpsAhead = 64;

// Keeps the device busy while the host issues what is measured: it would wait for the host between
// the ops otherwise, and that would be measured, too.
void occupy_device() {
  constexpr double kMostCyclesPerNs = 2.5;
  at::cuda::sleep(static_cast<int64_t>(kOpsAhead * kIssueNs * kMostCyclesPerNs));
}

}  // namespace

void warm_up(const SegmentProgram& program, ProgramMemory& memory, c10::ArrayRef<double> live) {
  c10::cuda::device_synchronize();
  issue_on_streams(
      program, memory, live,
      [](uint32_t, const Op&, const CUDAStream&, const auto& issue_op) { issue_op(); });
  c10::cuda::device_synchronize();
}

std::vector<double> measure(const SegmentProgram& program, ProgramMemory& memory,
                            c10::ArrayRef<double> live) {
  constexpr int kRuns = 2;
  struct Times {
    CUDAEvent begin{cudaEventDefault};
    CUDAEvent end{cudaEventDefault};
  };
  const size_t ops = program.segment.end - program.segment.begin;
  std::vector<double> fewest_ns(ops, std::numeric_limits<double>::max());
  warm_up(program, memory, live);
  for (int run = 0; run < kRuns; ++run) {
    std::vector<Times> times(ops);
    uint32_t issued = 0;
    issue_on_streams(
        program, memory, live,
        [&](uint32_t place, const Op&, const CUDAStream& stream, const auto& issue_op) {
          if (issued++ % kOpsAhead == 0) occupy_device();
          times[place].begin.record(stream);
          issue_op();
          times[place].end.record(stream);
        });
    c10::cuda::device_synchronize();
    for (size_t i = 0; i < ops; ++i)
      fewest_ns[i] = std::min(fewest_ns[i], 1e6 * times[i].begin.elapsed_time(times[i].end));
  }
  return fewest_ns;
}

SegmentGraph::SegmentGraph(const SegmentProgram& program, ProgramMemory& memory,
                           c10::ArrayRef<double> live, c10::MempoolId_t pool)
    : graph_(std::make_unique<at::cuda::CUDAGraph>()) {
  const CUDAStream origin = own_stream(program.device, 0);
  const c10::cuda::CUDAStreamGuard guard(origin);
  CapturedOrder proof;
  HeardBlocks heard;
  std::vector<std::string> faults;
  graph_->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  try {
    issue_on_streams(program, memory, live,
                     [&](uint32_t, const Op& op, const CUDAStream& stream, const auto& issue_op) {
                       heard.clear();
                       proof.begin_op(stream, op.name);
                       issue_op();
                       // Some ops make a call that ends a capture, and do not look at what it
                       // returns.
                       TORCH_CHECK(goes_on(stream), "it makes a call that ends a capture");
                       proof.end_op(stream, touches_of(program.plan, op, memory, heard));
                     });
    nodes_ = CapturedOrder::count_nodes(origin);
    faults = proof.faults(origin);
  } catch (...) {
    try {
      graph_->capture_end();
    } catch (const c10::Error&) {
      // It says that the capture failed; the first error says why.
    }
    graph_->reset();
    throw;
  }
  graph_->capture_end();
  NIMBLE_ASSERT(faults.empty(), faults.front());
}

}  // namespace nimble
