#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nimble/torch/cuda/graph_pool.h"
#include "nimble/torch/cuda/program_memory.h"
#include "nimble/torch/cuda/segment_graph.h"
#include "nimble/torch/device_replay.h"

namespace nimble {

// A program as graphs, and ops between them.
class GraphReplay : public DeviceReplay {
 public:
  explicit GraphReplay(const CudaProgram& program);
  ~GraphReplay() override;

  std::vector<at::Tensor> run(c10::ArrayRef<at::Tensor> inputs,
                              c10::ArrayRef<double> live) override;
  const PlannedSchedule& planned() const override { return planned_; }
  const DeviceReport& report() const override { return report_; }
  std::string moved_tensor() const override;

 private:
  // Planning, in this order.
  void cut(bool strict);
  void measure_ops(const CudaProgram& program);
  void schedule(const CudaProgram& program);

  void use_streams(const StreamAssignment& assignment, const std::vector<double>& costs,
                   DropRule rule);
  std::vector<double> op_costs() const;
  std::vector<bool> droppable(const Segment& segment) const;
  std::string why_outside(const Op& op) const;
  void capture(const CudaProgram& program);
  void put_outside(const OpFailed& failure);
  SegmentProgram program_of(size_t segment) const;
  void issue_alone(const Segment& segment, c10::ArrayRef<double> live);
  void copy_inputs(c10::ArrayRef<at::Tensor> inputs);
  std::vector<at::Tensor> hand_out(c10::ArrayRef<at::Tensor> inputs);
  void note_report();

  Plan& plan_;
  const c10::DeviceIndex device_;
  const bool borrowed_outputs_;
  const std::shared_ptr<FoldedConstants> constants_;  // null: none
  std::map<CallId, std::string> outside_;             // calls that are no part of a graph, and why
  std::vector<double> cost_ns_;                       // by CallId, measured; empty: not yet
  std::vector<Segment> segments_;
  std::vector<CapturePlan> orders_;  // by segment
  PlannedSchedule planned_;
  std::shared_ptr<GraphPool> pool_;
  std::unique_ptr<ProgramMemory> memory_;
  std::vector<std::unique_ptr<SegmentGraph>> graphs_;      // by segment; null: its ops are issued
  std::vector<std::pair<size_t, const void*>> addresses_;  // of external memory: BufferId, where
  DeviceReport report_;
};

}  // namespace nimble
