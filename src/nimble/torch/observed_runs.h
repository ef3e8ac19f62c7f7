#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <vector>

#include "nimble/torch/device_replay.h"
#include "nimble/torch/instance.h"
#include "nimble/torch/recording.h"
#include "nimble/torch/rounding.h"
#include "nimble/torch/saved_state.h"

namespace nimble {

// No memory is left, or the device failed: that says nothing of the program.
bool is_of_device(const std::exception& error);

// Runs of a recorded program, and what they gave. Every run has copies of what it writes among its
// inputs, and what it writes elsewhere is put back behind it: the user's state stays as it was.
//
// A step of training writes gigabytes. What a run has written is kept where the run left it, and
// copied only if the next one would change it.
class ObservedRuns {
 public:
  // `recording` must outlive it. `with_gradients`: whether the program ran with autograd on.
  ObservedRuns(Recording& recording, const std::vector<at::Tensor>& inputs, const Options& options,
               bool with_gradients);

  // The recorded run. To be asked for once: the recording lets go of it.
  Observed recorded();
  // Others, on inputs that stay as they are.
  Observed run(Instance& instance, const std::vector<at::Tensor>& inputs,
               const std::vector<double>& live);
  Observed run(DeviceReplay& device, const std::vector<at::Tensor>& inputs,
               const std::vector<double>& live);
  // As `expected`, from inputs and parameters that are rounded differently. The user's stay as they
  // are: others may read them meanwhile.
  Observed run_on_rounded(const Observed& expected, const std::vector<ResultPolicy>& policies,
                          const PlannedSchedule& schedule, int variant);
  // The program itself, unrecorded, on other values of the same kind; none if they are not for it.
  std::optional<Observed> run_on_other_values(const TensorFunction& function,
                                              const LiveFunction& live);

  // What one of them needs at most, with what it leaves.
  size_t bytes_of_a_run() const;

  const std::vector<at::Tensor>& inputs() const { return inputs_; }
  // The program may write its inputs: every replay gets the values of the recorded run.
  std::vector<at::Tensor> fresh_inputs() const;
  // Of each input that an op looks at.
  std::vector<at::Tensor> copies_to_run_on(const std::vector<at::Tensor>& inputs) const;
  // Where what a run on these inputs writes is before it.
  std::vector<at::Tensor> before_writes(const std::vector<at::Tensor>& inputs) const;
  SavedState& state() { return state_; }

  // Whether a result is within a tolerance, relative to the largest number or change.
  bool agrees(const Observed& run, const Observed& expected, size_t result, double tolerance) const;
  std::string name_of_result(size_t result) const;

 private:
  std::vector<at::Tensor> outputs_of_run(const std::vector<at::Tensor>& outputs,
                                         const std::vector<at::Tensor>& inputs) const;
  void replay(Instance& instance, const Recording& recording, Observed& run);
  void run_eagerly(const TensorFunction& function, Observed& run);

  Recording& recording_;
  const Options& options_;
  const bool with_gradients_;
  std::vector<bool> input_is_used_;  // by an op, or leaves the program
  std::vector<at::Tensor> inputs_;   // the user's own where no run can touch them
  SavedState state_;
};

}  // namespace nimble
