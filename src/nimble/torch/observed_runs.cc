#include "nimble/torch/observed_runs.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "nimble/base/error.h"
#include "nimble/torch/compare.h"
#include "nimble/torch/intra_op.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {
namespace {

// Other values of the same kind: in another order, and numbers up to a tenth off; not in another
// order if `in_place`, for what has a structure (a positive definite matrix).
at::Tensor other_values(const at::Tensor& tensor, bool in_place) {
  at::Tensor copy = copy_with_strides(tensor);
  if (copy.numel() == 0) return copy;
  const bool numbers = copy.is_floating_point() || copy.is_complex();
  if (!(in_place && numbers)) copy.copy_(copy.flatten().roll(1).view(copy.sizes()));
  if (numbers) {
    const auto options = copy.options().dtype(at::kDouble);
    const at::Tensor growth = at::arange(copy.numel(), options).view(copy.sizes()) * 0.618;
    copy.mul_(at::frac(growth).mul_(0.2).add_(0.9).to(copy.scalar_type()));
  }
  return copy;
}

// By input: whether an op looks at it, or it leaves the program.
std::vector<bool> used_inputs(const Trace& trace) {
  std::vector<bool> buffer_is_used(trace.buffers.size());
  for (const Call& call : trace.calls)
    for (const Use& use : call.uses)
      buffer_is_used[trace.views[use.view.index].buffer.index] = true;
  for (ViewId output : trace.outputs) buffer_is_used[trace.views[output.index].buffer.index] = true;
  std::vector<bool> is_used;
  for (ViewId input : trace.inputs)
    is_used.push_back(buffer_is_used[trace.views[input.index].buffer.index]);
  return is_used;
}

at::Tensor in_memory(const at::Tensor& tensor) {
  return tensor.is_cpu() ? tensor.detach() : copy_for_comparison(tensor);
}

// What a run on these inputs, which are nobody else's, has written.
std::vector<at::Tensor> written_by_run(const Recording& recording,
                                       const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> written = written_tensors(recording, inputs);
  const size_t externals = recording.written_externals.size();
  for (size_t i = 0; i < written.size(); ++i) {
    const bool is_input = i < written.size() - externals;
    written[i] = is_input ? in_memory(written[i]) : copy_for_comparison(written[i]);
  }
  return written;
}

}  // namespace

bool is_of_device(const std::exception& error) {
  return dynamic_cast<const c10::AcceleratorError*>(&error) ||
         dynamic_cast<const c10::OutOfMemoryError*>(&error);
}

ObservedRuns::ObservedRuns(Recording& recording, const std::vector<at::Tensor>& inputs,
                           const Options& options, bool with_gradients)
    : recording_(recording),
      options_(options),
      with_gradients_(with_gradients),
      input_is_used_(used_inputs(recording.trace)) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_copied_by_runs =
        recording_.input_is_written[i] && inputs[i].is_non_overlapping_and_dense();
    const bool is_own = !input_is_used_[i] || is_copied_by_runs;
    inputs_.push_back(is_own ? inputs[i].detach() : copy_with_strides(inputs[i]));
  }
  for (const at::Tensor& tensor : recording_.written_externals) state_.save(tensor.storage());
  for (const at::Generator& generator : recording_.generators) state_.save(generator);
}

Observed ObservedRuns::recorded() {
  return {inputs_, recording_.live_values, std::exchange(recording_.outputs, {}),
          before_writes(inputs_), std::exchange(recording_.written, {})};
}

Observed ObservedRuns::run(Instance& instance, const std::vector<at::Tensor>& inputs,
                           const std::vector<double>& live) {
  Observed run;
  run.inputs = copies_to_run_on(inputs);
  run.live = live;
  replay(instance, recording_, run);
  return run;
}

Observed ObservedRuns::run(DeviceReplay& device, const std::vector<at::Tensor>& inputs,
                           const std::vector<double>& live) {
  Observed run;
  run.inputs = copies_to_run_on(inputs);
  run.live = live;
  const SavedState::Checkpoint checkpoint(state_);
  run.outputs = outputs_of_run(device.run(run.inputs, run.live), run.inputs);
  run.written = written_by_run(recording_, run.inputs);
  return run;
}

Observed ObservedRuns::run_on_rounded(const Observed& expected,
                                      const std::vector<ResultPolicy>& policies,
                                      const PlannedSchedule& schedule, int variant) {
  const Plan plan(std::make_shared<Recording>(on_rounded_copies(recording_, variant)), policies);
  Instance instance(plan, schedule, options_.borrowed_outputs);
  Observed run;
  run.inputs = copies_to_run_on(expected.inputs);
  for (size_t i = 0; i < run.inputs.size(); ++i)
    if (input_is_used_[i] && run.inputs[i].scalar_type() == at::kFloat)
      round_differently(run.inputs[i].storage(), variant);
  run.live = expected.live;
  replay(instance, plan.recording, run);
  return run;
}

std::optional<Observed> ObservedRuns::run_on_other_values(const TensorFunction& function,
                                                          const LiveFunction& live) {
  for (bool in_place : {false, true}) {
    Observed expected;
    // All of them: what reads an input that no op was seen to read is what has to be found.
    for (const at::Tensor& input : inputs_)
      expected.inputs.push_back(other_values(input, in_place));
    try {
      run_eagerly(function, expected);
    } catch (const std::exception& error) {
      if (is_of_device(error)) throw;
      continue;
    }
    if (live) expected.live = live(expected.inputs);
    return expected;
  }
  return std::nullopt;
}

size_t ObservedRuns::bytes_of_a_run() const {
  size_t bytes = recording_.trace.framework_peak_bytes;
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (input_is_used_[i]) bytes += inputs_[i].nbytes();
  for (const at::Tensor& tensor : recording_.written_externals) bytes += tensor.storage().nbytes();
  return bytes;
}

std::vector<at::Tensor> ObservedRuns::fresh_inputs() const {
  std::vector<at::Tensor> copies = inputs_;
  for (size_t i = 0; i < copies.size(); ++i)
    if (recording_.input_is_written[i] || recording_.input_reshaped[i])
      copies[i] = copy_with_strides(inputs_[i]);
  return copies;
}

std::vector<at::Tensor> ObservedRuns::copies_to_run_on(
    const std::vector<at::Tensor>& inputs) const {
  std::vector<at::Tensor> copies;
  for (size_t i = 0; i < inputs.size(); ++i)
    copies.push_back(input_is_used_[i] ? copy_with_strides(inputs[i]) : inputs[i]);
  return copies;
}

std::vector<at::Tensor> ObservedRuns::before_writes(const std::vector<at::Tensor>& inputs) const {
  std::vector<at::Tensor> before = written_tensors(recording_, inputs);
  const size_t externals = recording_.written_externals.size();
  for (size_t i = 0; i < before.size(); ++i) {
    const bool is_input = i < before.size() - externals;
    before[i] = in_memory(is_input ? before[i] : state_.as_saved(before[i]));
  }
  return before;
}

bool ObservedRuns::agrees(const Observed& run, const Observed& expected, size_t result,
                          double tolerance) const {
  const size_t outputs = expected.outputs.size();
  if (result < outputs)
    return recording_.output_is_uninitialised[result] ||
           agree(run.outputs[result], expected.outputs[result], tolerance);
  const size_t i = result - outputs;
  return agree_in_change(expected.before[i], run.written[i], expected.written[i], tolerance);
}

std::string ObservedRuns::name_of_result(size_t i) const {
  const size_t outputs = recording_.trace.outputs.size();
  if (i < outputs) return message("output ", i);
  i -= outputs;
  for (size_t input = 0; input < inputs_.size(); ++input)
    if (recording_.input_is_written[input] && i-- == 0) return message("input ", input);
  for (size_t buffer = 0; buffer < recording_.storages.size(); ++buffer)
    if (recording_.storages[buffer] &&
        recording_.written_externals[i].storage().is_alias_of(recording_.storages[buffer]))
      return "'" + recording_.trace.buffers[buffer].name + "'";
  return "a tensor";
}

// Copied where they lie in memory of the user, which is put back, or of the next run.
std::vector<at::Tensor> ObservedRuns::outputs_of_run(const std::vector<at::Tensor>& outputs,
                                                     const std::vector<at::Tensor>& inputs) const {
  std::unordered_set<const void*> changing;
  for (const at::Tensor& input : inputs) changing.insert(input.storage().data());
  for (const c10::Storage& storage : recording_.storages)
    if (storage) changing.insert(storage.data());
  std::vector<at::Tensor> kept;
  for (const at::Tensor& output : outputs) {
    const bool changes = options_.borrowed_outputs || changing.count(output.storage().data()) > 0;
    kept.push_back(changes ? copy_for_comparison(output) : in_memory(output));
  }
  return kept;
}

// Fills in what the run gave.
void ObservedRuns::replay(Instance& instance, const Recording& recording, Observed& run) {
  const SavedState::Checkpoint checkpoint(state_);
  instance.set_live(run.live);
  run.outputs = outputs_of_run(instance.run(run.inputs), run.inputs);
  run.written = written_by_run(recording, run.inputs);
}

void ObservedRuns::run_eagerly(const TensorFunction& function, Observed& run) {
  const SavedState::Checkpoint checkpoint(state_);
  const IntraOpThreads threads(options_.threads);
  const at::AutoGradMode gradients(with_gradients_);
  std::vector<at::Tensor> copies;
  for (const at::Tensor& input : run.inputs) copies.push_back(copy_with_strides(input));
  run.outputs = outputs_of_run(function(copies), copies);
  run.before = before_writes(run.inputs);
  const at::NoGradGuard no_grad;
  run.written = written_by_run(recording_, copies);
}

}  // namespace nimble
