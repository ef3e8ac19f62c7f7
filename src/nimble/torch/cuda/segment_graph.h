#pragma once

#include <ATen/cuda/CUDAGraph.h>

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "nimble/schedule/capture_plan.h"
#include "nimble/torch/cuda/program_memory.h"

namespace nimble {

// A segment of a program, and in which order and on which streams its ops are issued. What it
// refers to must outlive it.
struct SegmentProgram {
  const Plan& plan;
  const Segment& segment;
  const CapturePlan& order;  // of the segment's tasks
  c10::DeviceIndex device;
};

// An op that could not be issued, and why.
class OpFailed : public std::exception {
 public:
  OpFailed(OpId failed, std::exception_ptr why, bool did_end_capture)
      : op(failed), error(std::move(why)), ended_capture(did_end_capture) {}
  const char* what() const noexcept override { return "an op could not be issued"; }

  OpId op;
  std::exception_ptr error;
  bool ended_capture;  // it made a call that a capture does not allow
};

// Runs a segment once on streams of ours, and waits for it: kernels are chosen and handles made,
// which a capture must not do.
void warm_up(const SegmentProgram& program, ProgramMemory& memory, c10::ArrayRef<double> live);

// How long each op takes on the device, in ns, by its place in the segment. Runs the segment, whose
// order must be on one stream, a few times; the first run warms up.
std::vector<double> measure(const SegmentProgram& program, ProgramMemory& memory,
                            c10::ArrayRef<double> live);

// A segment as one graph.
class SegmentGraph {
 public:
  // Captures it, and proves it free of races. Throws OpFailed, or what the end of the capture
  // threw; nothing of it is left then.
  SegmentGraph(const SegmentProgram& program, ProgramMemory& memory, c10::ArrayRef<double> live,
               c10::MempoolId_t pool);

  // On the current stream.
  void launch() { graph_->replay(); }
  size_t nodes() const { return nodes_; }

 private:
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
  size_t nodes_ = 0;
};

}  // namespace nimble
