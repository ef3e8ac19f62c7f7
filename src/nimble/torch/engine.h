#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nimble/torch/instance.h"
#include "nimble/torch/nimble.h"
#include "nimble/torch/plan.h"
#include "nimble/torch/prepare.h"

namespace nimble {

// State of the framework that decides what a program does, besides its inputs.
struct AmbientState {
  bool autocast = false;
  at::ScalarType autocast_dtype = at::kFloat;
  bool cuda_autocast = false;
  at::ScalarType cuda_autocast_dtype = at::kFloat;
  at::ScalarType default_dtype = at::kFloat;

  static AmbientState now();
  bool operator==(const AmbientState&) const = default;
  std::string to_string() const;
};

// A recorded program and its plan; runs it. Safe to call from several threads: each call in
// progress has an instance of its own.
class Engine {
 public:
  Engine(const TensorFunction& function, const std::vector<at::Tensor>& inputs,
         const Options& options, const NamedTensors& names, const LiveFunction& live = {});

  // Throws UserError if an input is not what was prepared or the model's tensors have moved.
  // `live`: the program's live numbers, all of them.
  std::vector<at::Tensor> run(c10::ArrayRef<at::Tensor> inputs, c10::ArrayRef<double> live = {});
  std::vector<TaskTime> run_timed(c10::ArrayRef<at::Tensor> inputs);

  // A tensor the program uses that was given other memory since, or empty.
  std::string moved_tensor() const;

  const Plan& plan() const { return *plan_; }
  const Graph& recorded_graph() const { return recorded_graph_; }  // as the program was written
  const Schedule& schedule() const { return planned_.built.schedule; }
  const PlannedSchedule& planned() const { return planned_; }
  const PrepareReport& report() const { return report_; }
  const DeviceReplay* device() const { return device_.get(); }  // null: the CPU
  // Bytes of folded and packed constants, besides the user's parameters.
  size_t weight_bytes() const;
  // Bytes that a replay on one stream holds at most: arena, outputs, results the framework makes.
  size_t peak_bytes() const;

 private:
  class Borrowed;
  // A named tensor and where it was.
  struct Watched {
    std::string name;
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;  // the user's own
    const c10::StorageImpl* storage;
    int64_t offset;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };

  void watch(const std::string& name, const at::Tensor& tensor);
  void check(c10::ArrayRef<at::Tensor> inputs) const;
  void check_input(size_t index, const at::Tensor& input) const;
  // Of an input that an output is a view of.
  void check_layout(size_t index, const at::Tensor& input) const;
  void check_overlaps(c10::ArrayRef<at::Tensor> inputs) const;

  Options options_;
  AmbientState ambient_;
  std::vector<Watched> watched_;  // named tensors that the program uses
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Weights> weights_;  // null: the framework's kernels only
  Graph recorded_graph_;
  PlannedSchedule planned_;
  PrepareReport report_;
  std::vector<bool> output_views_input_;   // by input: an output is a part of it, or it is reshaped
  bool writes_caller_memory_ = false;      // inputs or externals
  std::vector<bool> external_is_written_;  // by buffer
  std::vector<std::unique_ptr<Instance>> idle_;
  std::unique_ptr<DeviceReplay> device_;  // instead of instances, if not on the CPU
};

}  // namespace nimble
