// Longer than most: each step of preparing needs the runs that the others compare with.
#include "nimble/torch/prepare.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <tuple>

#include "nimble/base/error.h"
#include "nimble/schedule/many_streams.h"
#include "nimble/schedule/one_stream.h"
#include "nimble/schedule/verify.h"
#include "nimble/torch/compare.h"
#include "nimble/torch/cuda.h"
#include "nimble/torch/folded_constants.h"
#include "nimble/torch/framework_rewrite.h"
#include "nimble/torch/intra_op.h"
#include "nimble/torch/live_numbers.h"
#include "nimble/torch/native_plan.h"
#include "nimble/torch/rounding.h"
#include "nimble/torch/saved_state.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

std::string text_of(const std::exception& error) {
  const auto* framework = dynamic_cast<const c10::Error*>(&error);
  return framework ? framework->what_without_backtrace() : error.what();
}

// No memory is left, or the device failed: that says nothing of the program.
bool is_of_device(const std::exception& error) {
  return dynamic_cast<const c10::AcceleratorError*>(&error) ||
         dynamic_cast<const c10::OutOfMemoryError*>(&error);
}

PlannedSchedule proven(BuiltSchedule built, int intra_op_threads) {
  const std::vector<std::string> faults = verify_schedule(built.schedule);
  NIMBLE_ASSERT(faults.empty(), faults.front());
  return {std::move(built), intra_op_threads};
}

PlannedSchedule schedule_of(const Plan& plan, const StreamAssignment& assignment,
                            const std::vector<double>& costs, int intra_op_threads) {
  return proven(build_schedule(plan.graph, assignment, costs, plan.adopted), intra_op_threads);
}

// Some kernels add in an order that depends on timing or on the number of threads: that much
// difference is not a fault.
constexpr double kFrameworkTolerance = 1e-3;
constexpr double kNativeTolerance = 1e-4;    // of our kernels, relative to the largest output
constexpr double kWinogradTolerance = 1e-3;  // likewise, if the user allows them
// Several streams in place of one. Near a tie one measurement says little: Inception-v3 was once
// kept on two streams and then took 33 instead of 31 ms.
constexpr double kClearlyFaster = 0.97;

// By how much rounding moves a program. A step of MobileNetV2 at batch 8 was moved by 1.5e-4 in one
// run and by 2.7e-2 in another.
constexpr int kRoundings = 4;

constexpr double kNotMeasured = std::numeric_limits<double>::max();

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

class Preparation {
 public:
  Preparation(Recording recording, const std::vector<at::Tensor>& inputs, const Options& options,
              bool with_gradients)
      : shared_recording_(std::make_shared<Recording>(std::move(recording))),
        recording_(*shared_recording_),
        options_(options),
        with_gradients_(with_gradients) {
    for (const RecordedCall& call : recording_.calls)
      has_backward_ |= call.op.operator_name().name.find("backward") != std::string::npos;
    for (const at::Tensor& input : inputs) inputs_.push_back(copy_with_strides(input));
    for (const at::Tensor& tensor : recording_.written_externals) state_.save(tensor.storage());
    for (const at::Generator& generator : recording_.generators) state_.save(generator);
    externals_before_ = copies_of(written_tensors(recording_, {}));
    recorded_ = {inputs_, recording_.live_values, recording_.outputs, before_writes(inputs_),
                 recording_.written};
  }

  bool is_on_device() const { return !recording_.device.is_cpu(); }

  void plan() {
    const Clock::time_point start = Clock::now();
    policies_ = best_policies(recording_);
    while (!try_plan()) {
      if (!demote())
        throw Refused(message("cannot replay this program: ", difference_,
                              ". It does something that is not a tensor operation"));
    }
    result_.recorded_graph = result_.plan->graph;
    result_.report.plan_ms = microseconds_since(start) / 1000;
  }

  // On a device that runs by itself: one plan, captured, which must give what the recorded run
  // gave.
  void capture_on_device() {
    const Clock::time_point start = Clock::now();
    result_.plan = adopting_plan(shared_recording_);
    result_.recorded_graph = result_.plan->graph;
    {
      const SavedState::Checkpoint checkpoint(state_);
      result_.device = capture_on_cuda({*result_.plan, inputs_, options_});
    }
    result_.schedule = result_.device->planned();
    result_.report.many_streams = result_.schedule.built.schedule.streams.size() > 1;
    result_.report.why_framework_kernels = "on CUDA there are none of ours";
    result_.report.plan_ms = microseconds_since(start) / 1000;
    const Observed run = run_on_copies(inputs_, recorded_.live);
    if (const std::string name = first_difference(run, recorded_); !name.empty())
      throw Refused(message("cannot replay this program: ", name,
                            " of the replay differs from the recorded run. It does something that "
                            "is not a tensor operation"));
  }

  // Other plans of what was captured, each of which must give the same and measure faster. None is
  // needed: one that fails is dropped.
  void consider_other_plans(const TensorFunction& function, const NamedTensors& names) {
    const Clock::time_point start = Clock::now();
    if (result_.schedule.built.schedule.streams.size() > 1)
      consider_on_device("ops in recorded order", kFrameworkTolerance, [&] {
        DeviceCandidate candidate{adopting_plan(shared_recording_)};
        candidate.launch_order = false;
        return candidate;
      });
    const bool rewrites = options_.native_kernels && recording_.written.empty() &&
                          recording_.live_values.empty() && !has_backward_;
    if (rewrites) {
      const std::unique_ptr<Plan> recorded = adopting_plan(shared_recording_);
      const auto rewritten = [&](const FrameworkRewrite& rewrite) {
        return DeviceCandidate{rewrite_framework_calls(*recorded, rewrite)};
      };
      consider_on_device(
          "batch norm folded", kNativeTolerance, [&] { return rewritten({}); }, &names);
      const bool fused = consider_on_device(
          "batch norm folded, convolutions fused with additions and relu", kNativeTolerance,
          [&] { return rewritten({.fuse = true}); }, &names);
      consider_on_device(
          fused ? "likewise, in channels_last" : "batch norm folded, in channels_last",
          kNativeTolerance, [&] { return in_channels_last(function, names, fused); }, &names);
    }
    result_.report.measure_ms = microseconds_since(start) / 1000;
  }

  // The recorded values may hide that the program does something that is not an op. So it runs once
  // more, unrecorded, on other values, and the replay must give the same on them.
  void run_on_other_values(const TensorFunction& function, const LiveFunction& live) {
    for (bool in_place : {false, true}) {
      Observed expected;
      for (const at::Tensor& input : inputs_)
        expected.inputs.push_back(other_values(input, in_place));
      try {
        run_eagerly(function, expected);
      } catch (const std::exception& error) {
        if (is_of_device(error)) throw;
        continue;  // these values are not for this program
      }
      if (live) expected.live = live(expected.inputs);
      on_others_ = std::move(expected);
      return;
    }
  }

  // Goes over to our own kernels where there are some, if they give the same, on other values too,
  // and are not slower than the framework's. Else those have to give the same.
  void use_native_kernels(const NamedTensors& names) {
    std::string& why_not = result_.report.why_framework_kernels;
    uses_native_ = options_.native_kernels;
    why_not = uses_native_ ? try_native_kernels(names) : "the framework's kernels were asked for";
    uses_native_ = why_not.empty();
    if (!uses_native_) check_on_other_values();
  }

  // Of the framework's own kernels.
  void check_on_other_values() {
    if (others_are_checked_ || !on_others_) return;
    const Observed& expected = *on_others_;
    Observed run;
    try {
      run = run_on_copies(expected.inputs, expected.live);
    } catch (const std::exception& error) {
      if (is_of_device(error)) throw;
      throw Refused(message("cannot replay this program: on other values its replay fails: ",
                            text_of(error)));
    }
    const bool complete = run.outputs.size() <= expected.outputs.size();
    const std::string name = complete ? first_difference(run, expected) : "an output";
    if (!name.empty())
      throw Refused(message("cannot replay this program: on other values ", name,
                            " is not what the program gives. It does something that is not a "
                            "tensor operation, or depends on values in a way that is not seen"));
    if (result_.instance) result_.instance->set_live(recorded_.live);
    others_are_checked_ = true;
  }

  void choose_schedule() {
    const Clock::time_point start = Clock::now();
    // Inside of a framework op, when several of them run at once.
    const int inside = result_.weights ? 1 : std::max(1, options_.threads / workers());
    const std::vector<double> costs = measure_costs(inside);
    for (size_t i = 0; i < costs.size(); ++i)
      result_.schedule.built.schedule.tasks[i].cost_ns = costs[i];
    if (workers() > 1 && !(result_.weights && options_.streams == 1)) {
      ManyStreams many = build_many_streams(
          result_.plan->graph, costs,
          {.workers = static_cast<size_t>(workers()), .memory_limit_bytes = memory_limit()},
          result_.plan->adopted);
      result_.report.makespan_us = many.makespan_ns / 1000;
      result_.report.makespan_lower_bound_us = many.lower_bound_ns / 1000;
      if (many.built.schedule.streams.size() > 1) consider(proven(std::move(many.built), inside));
    }
    result_.report.measure_ms = microseconds_since(start) / 1000;
  }

  Prepared finish() { return std::move(result_); }

  PrepareReport& report() { return result_.report; }

 private:
  struct Candidate {
    std::unique_ptr<Plan> plan;
    std::unique_ptr<Weights> weights;
    PlannedSchedule schedule;
    std::unique_ptr<Instance> instance;
  };

  struct DeviceCandidate {
    std::unique_ptr<Plan> plan;  // null: there is nothing to consider
    bool launch_order = true;
    std::unique_ptr<DeviceReplay> device = nullptr;
  };

  static std::unique_ptr<Plan> adopting_plan(const std::shared_ptr<Recording>& recording) {
    return std::make_unique<Plan>(
        recording, std::vector<ResultPolicy>(recording->calls.size(), ResultPolicy::kAdoption));
  }

  // `names` of what a rewritten plan may fold. True if it was kept.
  bool consider_on_device(const std::string& name, double tolerance,
                          const std::function<DeviceCandidate()>& make,
                          const NamedTensors* names = nullptr) {
    ConsideredPlan considered{.name = name};
    try {
      DeviceCandidate candidate = make();
      if (!candidate.plan) return false;
      std::shared_ptr<FoldedConstants> constants;
      if (names) {
        std::vector<at::Tensor> tensors;
        for (const auto& [known, tensor] : *names) tensors.push_back(tensor);
        constants = std::make_shared<FoldedConstants>(*candidate.plan, tensors);
      }
      {
        const SavedState::Checkpoint checkpoint(state_);
        candidate.device = capture_on_cuda(
            {*candidate.plan, inputs_, options_, constants, candidate.launch_order});
      }
      considered.why_dropped = difference_on_device(*candidate.device, tolerance);
      if (considered.why_dropped.empty()) {
        std::tie(considered.present_us, considered.us) =
            device_times_in_turns(*result_.device, *candidate.device);
        considered.kept = considered.us < kClearlyFaster * considered.present_us;
      }
      if (considered.kept) {
        result_.device = std::move(candidate.device);
        result_.plan = std::move(candidate.plan);
        result_.schedule = result_.device->planned();
        result_.report.many_streams = result_.schedule.built.schedule.streams.size() > 1;
      }
    } catch (const std::exception& error) {
      const std::string text = text_of(error);
      considered.why_dropped = text.substr(0, text.find('\n'));
      // Throws if the device does not work any more.
      if (is_of_device(error)) run_on_copies(inputs_, recorded_.live);
    }
    result_.report.considered.push_back(considered);
    return considered.kept;
  }

  // What is not within the tolerance of the recorded run or of the run on other values, or empty.
  std::string difference_on_device(DeviceReplay& device, double tolerance) {
    for (const Observed* expected : {&recorded_, on_others_ ? &*on_others_ : nullptr}) {
      if (!expected) continue;
      const Observed run = run_on_copies(device, expected->inputs, expected->live);
      const std::string name = run.outputs.size() <= expected->outputs.size()
                                   ? first_difference(run, *expected, tolerance)
                                   : "an output";
      if (!name.empty()) return name + " differs by more than rounding";
    }
    return "";
  }

  std::pair<double, double> device_times_in_turns(DeviceReplay& a, DeviceReplay& b) {
    constexpr int kRounds = 9;
    std::vector<double> times_of_a;
    std::vector<double> times_of_b;
    const auto time_of_call = [&](DeviceReplay& device) {
      const SavedState::Checkpoint checkpoint(state_);
      const std::vector<at::Tensor> inputs = fresh_inputs();
      return device_time_us([&] { device.run(inputs, recorded_.live); });
    };
    for (int round = 0; round < kRounds; ++round) {
      times_of_a.push_back(time_of_call(a));
      times_of_b.push_back(time_of_call(b));
    }
    return {quartile_after_first(times_of_a), quartile_after_first(times_of_b)};
  }

  // The program recorded once more, on images in channels_last: the framework's ops keep that.
  DeviceCandidate in_channels_last(const TensorFunction& function, const NamedTensors& names,
                                   bool fuse) {
    std::vector<at::Tensor> inputs = inputs_;
    bool has_image = false;
    for (at::Tensor& input : inputs) {
      if (input.dim() != 4 || !input.is_floating_point()) continue;
      has_image = true;
      input = input.contiguous(at::MemoryFormat::ChannelsLast);
    }
    const bool has_convolution =
        std::any_of(recording_.trace.calls.begin(), recording_.trace.calls.end(),
                    [](const Call& call) { return call.op == "aten::convolution"; });
    if (!has_image || !has_convolution) return {};
    auto again = [&] {
      const at::AutoGradMode gradients(with_gradients_);
      return std::make_shared<Recording>(record_calls(function, inputs, names));
    }();
    const auto desc_of = [](const Recording& recording, ViewId view) {
      return recording.trace.views[view.index].desc;
    };
    const std::vector<ViewId>& outputs = recording_.trace.outputs;
    if (again->trace.outputs.size() != outputs.size())
      throw Refused("it has not always as many outputs");
    const std::unique_ptr<Plan> plan = adopting_plan(again);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool same = desc_of(recording_, outputs[i]) == desc_of(*again, again->trace.outputs[i]);
      const Role role = plan->graph.memories[plan->graph.outputs[i].memory.index].role;
      if (!same || role == Role::kInput)
        throw Refused(message("output ", i, " would have other strides"));
    }
    return {rewrite_framework_calls(*plan, {.fuse = fuse, .channels_last = true})};
  }

  // Threads that run tasks side by side. Ops of ours are divided into tasks, so that one stream of
  // them uses all threads, too.
  int workers() const {
    if (options_.streams > 1) return options_.streams;
    return options_.streams == 1 && !uses_native_ ? 1 : options_.threads;
  }

  // What the framework needed at most, less the outputs that are not in the arena.
  size_t memory_limit() const {
    const Graph& graph = result_.plan->graph;
    size_t outputs = 0;
    std::vector<bool> counted(graph.memories.size());
    for (size_t i = 0; i < std::min(graph.first_joint_output, graph.outputs.size()); ++i) {
      const uint32_t id = graph.outputs[i].memory.index;
      if (graph.memories[id].role == Role::kIntermediate && !counted[id])
        outputs += graph.memories[id].bytes;
      counted[id] = true;
    }
    const size_t peak = recording_.trace.framework_peak_bytes;
    return peak > outputs ? peak - outputs : 0;
  }

  // Empty, or why the framework's kernels stay.
  std::string try_native_kernels(const NamedTensors& names) {
    std::string difference;
    for (bool winograd : {true, false}) {
      if (winograd && !options_.winograd) continue;
      const Clock::time_point start = Clock::now();
      NativePlan native =
          make_native_plan(*result_.plan, {static_cast<size_t>(workers()), winograd});
      if (!native.plan) return "it has no op that a kernel of ours computes";
      Candidate candidate = candidate_of(std::move(native.plan), names);
      difference = difference_from_framework(*candidate.instance,
                                             winograd ? kWinogradTolerance : kNativeTolerance);
      result_.report.plan_ms += microseconds_since(start) / 1000;
      if (!difference.empty()) continue;
      if (!native.framework_ops.empty() && !is_faster(*candidate.instance)) {
        std::string left;
        for (const std::string& name : native.framework_ops) left += " " + name;
        return "the framework's kernels alone measured faster; no kernel of ours for" + left;
      }
      result_.report.select_ms = native.select_ms;
      result_.report.passes = std::move(native.passes);
      result_.report.distinct_ops = native.distinct_ops;
      result_.instance = std::move(candidate.instance);
      result_.weights = std::move(candidate.weights);
      result_.plan = std::move(candidate.plan);
      result_.schedule = std::move(candidate.schedule);
      return "";
    }
    return difference;
  }

  // One op after another, each divided among all workers.
  Candidate candidate_of(std::unique_ptr<Plan> plan, const NamedTensors& names) {
    Candidate candidate;
    candidate.plan = std::move(plan);
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : names) tensors.push_back(tensor);
    candidate.weights = std::make_unique<Weights>(*candidate.plan, tensors);
    const std::vector<double> no_costs(candidate.plan->graph.ops.size(), 1.0);
    candidate.schedule =
        proven(build_one_stream(candidate.plan->graph, static_cast<size_t>(workers()), no_costs,
                                candidate.plan->adopted),
               options_.threads);
    candidate.instance =
        std::make_unique<Instance>(*candidate.plan, candidate.schedule, options_.borrowed_outputs);
    candidate.instance->use(candidate.weights->current()->image);
    return candidate;
  }

  // What is not within the tolerance of the recorded run or of the run on other values, or empty.
  std::string difference_from_framework(Instance& instance, double tolerance) {
    try {
      std::string found = difference_on(instance, recorded_, tolerance);
      if (!found.empty() || !on_others_) return found;
      return difference_on(instance, *on_others_, tolerance);
    } catch (const std::exception& error) {
      return message("our kernels fail: ", text_of(error));
    }
  }

  std::string difference_on(Instance& instance, const Observed& expected, double tolerance) {
    const Observed replayed = run_on_copies(instance, expected.inputs, expected.live);
    if (replayed.outputs.size() != expected.outputs.size())
      return "it has not always as many outputs";
    RoundingResponse response(expected, has_backward_);
    for (size_t i = 0; i < expected.results(); ++i) {
      if (result_agrees(replayed, expected, i, tolerance)) continue;
      check_on_other_values();  // what follows forgives much
      while (!response.explains(replayed, i) && response.runs() < kRoundings)
        response.add(run_on_rounded(expected, response.runs()));
      if (response.explains(replayed, i)) continue;
      return message("with our kernels ", name_of_result(i), " is not within ", tolerance,
                     " of the framework's, relative to the largest number: ",
                     response.error(replayed, i), " (the framework's own moves by ",
                     response.own(i), " if inputs and parameters are rounded differently)");
    }
    if (response.runs() > 0 && !response.explains_most(replayed))
      return "with our kernels most results are further from the framework's than other rounding "
             "of inputs and parameters moves them";
    return "";
  }

  std::string name_of_result(size_t i) const {
    if (i < recording_.outputs.size()) return message("output ", i);
    i -= recording_.outputs.size();
    for (size_t input = 0; input < inputs_.size(); ++input)
      if (recording_.input_is_written[input] && i-- == 0) return message("input ", input);
    for (size_t buffer = 0; buffer < recording_.storages.size(); ++buffer)
      if (recording_.storages[buffer] &&
          recording_.written_externals[i].storage().is_alias_of(recording_.storages[buffer]))
        return "'" + recording_.trace.buffers[buffer].name + "'";
    return "a tensor";
  }

  bool result_agrees(const Observed& run, const Observed& expected, size_t i,
                     double tolerance = kFrameworkTolerance) const {
    const size_t outputs = expected.outputs.size();
    if (i < outputs)
      return recording_.output_is_uninitialised[i] ||
             agree(run.outputs[i], expected.outputs[i], tolerance);
    i -= outputs;
    return agree_in_change(expected.before[i], run.written[i], expected.written[i], tolerance);
  }

  std::vector<at::Tensor> before_writes(const std::vector<at::Tensor>& inputs) const {
    std::vector<at::Tensor> before;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (recording_.input_is_written[i]) before.push_back(copy_for_comparison(inputs[i]));
    before.insert(before.end(), externals_before_.begin(), externals_before_.end());
    return before;
  }

  // The first result that is not as expected, or empty.
  std::string first_difference(const Observed& run, const Observed& expected,
                               double tolerance = kFrameworkTolerance) const {
    for (size_t i = 0; i < recording_.outputs.size() + recording_.written.size(); ++i)
      if (!result_agrees(run, expected, i, tolerance)) return name_of_result(i);
    return "";
  }

  static std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& tensor : tensors) copies.push_back(copy_for_comparison(tensor));
    return copies;
  }

  // Of what is the result so far.
  Observed run_on_copies(const std::vector<at::Tensor>& inputs, const std::vector<double>& live) {
    return result_.device ? run_on_copies(*result_.device, inputs, live)
                          : run_on_copies(*result_.instance, inputs, live);
  }

  Observed run_on_copies(DeviceReplay& device, const std::vector<at::Tensor>& inputs,
                         const std::vector<double>& live) {
    Observed run;
    for (const at::Tensor& input : inputs) run.inputs.push_back(copy_with_strides(input));
    run.live = live;
    const SavedState::Checkpoint checkpoint(state_);
    run.outputs = copies_of(device.run(run.inputs, run.live));
    run.written = copies_of(written_tensors(recording_, run.inputs));
    return run;
  }

  Observed run_on_copies(Instance& instance, const std::vector<at::Tensor>& inputs,
                         const std::vector<double>& live) {
    Observed run;
    for (const at::Tensor& input : inputs) run.inputs.push_back(copy_with_strides(input));
    run.live = live;
    replay(instance, recording_, run);
    return run;
  }

  // What the framework gives if inputs and parameters are rounded differently. The user's stay as
  // they are: others may read them meanwhile.
  Observed run_on_rounded(const Observed& expected, int variant) {
    const Plan plan(std::make_shared<Recording>(on_rounded_copies(recording_, variant)), policies_);
    Instance instance(plan, result_.schedule, options_.borrowed_outputs);
    Observed run;
    for (const at::Tensor& input : expected.inputs) {
      run.inputs.push_back(copy_with_strides(input));
      if (input.scalar_type() == at::kFloat)
        round_differently(run.inputs.back().storage(), variant);
    }
    run.live = expected.live;
    run.before = copies_of(written_tensors(plan.recording, run.inputs));
    replay(instance, plan.recording, run);
    return run;
  }

  // Fills in what the run gave.
  void replay(Instance& instance, const Recording& recording, Observed& run) {
    const SavedState::Checkpoint checkpoint(state_);
    instance.set_live(run.live);
    run.outputs = copies_of(instance.run(run.inputs));
    run.written = copies_of(written_tensors(recording, run.inputs));
  }

  // Than the present instance.
  bool is_faster(Instance& other) {
    const auto [present_us, other_us] = time_in_turns(*result_.instance, other);
    return other_us < present_us;
  }

  void run_eagerly(const TensorFunction& function, Observed& run) {
    const SavedState::Checkpoint checkpoint(state_);
    const IntraOpThreads threads(options_.threads);
    const at::AutoGradMode gradients(with_gradients_);
    std::vector<at::Tensor> copies;
    for (const at::Tensor& input : run.inputs) copies.push_back(copy_with_strides(input));
    run.outputs = copies_of(function(copies));
    run.before = before_writes(run.inputs);
    const at::NoGradGuard no_grad;
    run.written = copies_of(written_tensors(recording_, copies));
  }

  // Some call did not do with its results what its policy says: the next one for those calls that
  // are known, the safest for all if none is. False if there is nothing left to try.
  bool demote() {
    const std::vector<ResultPolicy> before = policies_;
    if (misfits_.empty()) policies_.assign(policies_.size(), ResultPolicy::kAdoption);
    for (CallId call : misfits_) policies_[call.index] = ResultPolicy::kAdoption;
    return policies_ != before;
  }

  // Plans on one stream and replays once; false if that differs from the recorded run.
  bool try_plan() {
    result_.instance.reset();
    result_.plan = std::make_unique<Plan>(shared_recording_, policies_);
    const std::vector<double> no_costs(result_.plan->graph.ops.size(), 0.0);
    result_.schedule =
        schedule_of(*result_.plan, single_stream(result_.plan->graph), no_costs, options_.threads);
    result_.instance =
        std::make_unique<Instance>(*result_.plan, result_.schedule, options_.borrowed_outputs);
    misfits_.clear();
    try {
      const Observed run = run_on_copies(*result_.instance, inputs_, recorded_.live);
      misfits_ = result_.instance->misfits();
      if (!misfits_.empty()) return false;
      if (const std::string name = first_difference(run, recorded_); !name.empty()) {
        difference_ = message(name, " of the replay differs from the recorded run");
        return false;
      }
    } catch (const std::exception& error) {
      difference_ = message("its replay fails: ", text_of(error));
      return false;
    }
    return true;
  }

  // Of each task, with so many threads inside of the framework's.
  std::vector<double> measure_costs(int threads) {
    std::vector<double> costs(result_.plan->graph.ops.size(), kNotMeasured);
    constexpr int kRuns = 2;
    constexpr double kLongUs = 100e3;
    const auto measure = [&](Instance& instance) {
      const Clock::time_point start = Clock::now();
      for (int run = 0; run < kRuns; ++run) {
        if (run > 0 && microseconds_since(start) > kLongUs) break;
        const SavedState::Checkpoint checkpoint(state_);
        for (const TaskTime& time : instance.run_timed(fresh_inputs())) {
          double& best = costs[time.task.index];
          best = std::min(best, static_cast<double>(time.end_ns - time.begin_ns));
        }
      }
    };
    const auto& ops = result_.plan->graph.ops;
    const bool all_ours =
        std::none_of(ops.begin(), ops.end(), [](const Op& op) { return op.call.valid(); });
    if (all_ours) {
      measure(*result_.instance);  // is warm
      return costs;
    }
    PlannedSchedule serial = result_.schedule;
    serial.intra_op_threads = threads;
    Instance instance(*result_.plan, serial, options_.borrowed_outputs);
    if (result_.weights) instance.use(result_.weights->current()->image);
    time_of(instance);  // warms up
    measure(instance);
    return costs;
  }

  // Measures a schedule beside the present one, in turns, and keeps the faster.
  void consider(PlannedSchedule candidate) {
    auto instance = std::make_unique<Instance>(*result_.plan, candidate, options_.borrowed_outputs);
    if (result_.weights) instance->use(result_.weights->current()->image);
    const auto [present, other] = time_in_turns(*result_.instance, *instance);
    result_.report.one_stream_us = present;
    result_.report.many_streams_us = other;
    const bool asked_for = options_.streams > 1;
    if (!asked_for && other > kClearlyFaster * present) return;
    result_.report.many_streams = true;
    result_.schedule = std::move(candidate);
    result_.instance = std::move(instance);
  }

  // What both take when little disturbs them (the lower quartile), in microseconds.
  std::pair<double, double> time_in_turns(Instance& a, Instance& b) {
    std::vector<double> times_of_a;
    std::vector<double> times_of_b;
    const Clock::time_point start = Clock::now();
    constexpr int kFewest = 3;
    constexpr int kMost = 25;
    constexpr double kBudgetUs = 300e3;
    for (int round = 0; round < kMost; ++round) {
      if (round >= kFewest && microseconds_since(start) > kBudgetUs) break;
      times_of_a.push_back(time_of(a));
      times_of_b.push_back(time_of(b));
      const bool is_long = microseconds_since(start) > kBudgetUs;
      if (round > 0 && is_long && times_of_b.back() > times_of_a.back()) break;
    }
    return {quartile_after_first(times_of_a), quartile_after_first(times_of_b)};
  }

  double time_of(Instance& instance) {
    const SavedState::Checkpoint checkpoint(state_);
    const std::vector<at::Tensor> inputs = fresh_inputs();
    const Clock::time_point start = Clock::now();
    instance.run(inputs);
    return microseconds_since(start);
  }

  static double quartile_after_first(std::vector<double> times) {
    times.erase(times.begin());
    std::nth_element(times.begin(), times.begin() + times.size() / 4, times.end());
    return times[times.size() / 4];
  }

  // The program may write its inputs: every replay gets the values of the recorded run.
  std::vector<at::Tensor> fresh_inputs() const {
    std::vector<at::Tensor> copies = inputs_;
    for (size_t i = 0; i < copies.size(); ++i)
      if (recording_.input_is_written[i] || recording_.input_reshaped[i])
        copies[i] = copy_with_strides(inputs_[i]);
    return copies;
  }

  std::shared_ptr<Recording> shared_recording_;
  Recording& recording_;
  Options options_;
  std::vector<at::Tensor> inputs_;
  bool with_gradients_;                       // whether the program ran with autograd on
  bool has_backward_ = false;                 // and used it
  Observed recorded_;                         // the recorded run
  std::optional<Observed> on_others_;         // a run of the program on other values
  std::vector<at::Tensor> externals_before_;  // what the program writes, as it was
  SavedState state_;
  std::vector<ResultPolicy> policies_;  // of the framework's plan, by CallId
  Prepared result_;
  std::vector<CallId> misfits_;
  std::string difference_;
  bool uses_native_ = false;
  bool others_are_checked_ = false;  // with the framework's kernels
};

// Records the program once more; its live numbers are others now.
void check_live_numbers(const Recording& recording, const TensorFunction& function,
                        const std::vector<at::Tensor>& inputs, const LiveFunction& live) {
  const Recording again = record_calls(function, inputs);
  const std::string difference = how_numbers_differ(recording, again, live(inputs));
  if (difference.empty()) return;
  throw Refused(message("cannot replay this program: ", difference,
                        ": a number there depends on a hyperparameter of an optimizer in a way "
                        "that cannot be followed, and would be frozen. Only + - * / ** and "
                        "comparisons, inside of optimizer.step(), are followed; pass the number "
                        "as a tensor argument of the step instead"));
}

}  // namespace

Prepared prepare(const TensorFunction& function, const std::vector<at::Tensor>& inputs,
                 const Options& options, const NamedTensors& names, const LiveFunction& live) {
  const Clock::time_point start = Clock::now();
  Recording recording = [&] {
    const IntraOpThreads threads(options.threads);
    return record_calls(function, inputs, names);
  }();
  if (live) check_live_numbers(recording, function, inputs, live);
  const double record_ms = microseconds_since(start) / 1000;
  const bool with_gradients = at::GradMode::is_enabled();
  const at::NoGradGuard no_grad;
  Preparation preparation(std::move(recording), inputs, options, with_gradients);
  preparation.report().record_ms = record_ms;
  if (preparation.is_on_device()) {
    preparation.capture_on_device();
    preparation.run_on_other_values(function, live);
    preparation.check_on_other_values();
    preparation.consider_other_plans(function, names);
    return preparation.finish();
  }
  preparation.plan();
  preparation.run_on_other_values(function, live);
  preparation.use_native_kernels(names);
  preparation.choose_schedule();
  Prepared prepared = preparation.finish();
#ifdef __GLIBC__
  // Else what preparing needed stays with the process: 418 MiB for NASNet-A large.
  malloc_trim(0);
#endif
  return prepared;
}

}  // namespace nimble
