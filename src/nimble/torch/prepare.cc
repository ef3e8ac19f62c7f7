// Longer than most: each step of preparing needs the runs that the others compare with.
#include "nimble/torch/prepare.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "nimble/base/error.h"
#include "nimble/schedule/many_streams.h"
#include "nimble/schedule/one_stream.h"
#include "nimble/schedule/verify.h"
#include "nimble/torch/available_memory.h"
#include "nimble/torch/cuda.h"
#include "nimble/torch/folded_constants.h"
#include "nimble/torch/framework_rewrite.h"
#include "nimble/torch/intra_op.h"
#include "nimble/torch/live_numbers.h"
#include "nimble/torch/native_plan.h"
#include "nimble/torch/observed_runs.h"
#include "nimble/torch/side_by_side.h"

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

PlannedSchedule proven(BuiltSchedule built, int intra_op_threads) {
  const std::vector<std::string> faults = verify_schedule(built.schedule);
  NIMBLE_ASSERT(faults.empty(), faults.front());
  return {std::move(built), intra_op_threads};
}

// The arena may grow so much for the sake of streams that write where no other stream's cache is.
constexpr double kMostGrowth = 1.5;

PlannedSchedule kept_apart(BuiltSchedule built, int intra_op_threads, size_t memory_limit) {
  const double grown = kMostGrowth * static_cast<double>(built.schedule.arena_bytes);
  keep_streams_apart(built.schedule, std::min(static_cast<size_t>(grown), memory_limit));
  return proven(std::move(built), intra_op_threads);
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
// One kernel by itself, or a few that were fused. Those of ours are within 2e-6 of double precision
// in steps of several networks (tests/ops_of_step.py), and PartsJudged forgives what cancels out.
constexpr double kPartTolerance = 1e-5;
// Several streams in place of one. Near a tie one measurement says little: Inception-v3 was once
// kept on two streams and then took 33 instead of 31 ms.
constexpr double kClearlyFaster = 0.97;

// The memory of several streams beside that of one, if it is to be little. A step of MobileNetV2 at
// batch 32 took 8.4 ms in 40 MiB and 7.6 ms in 25 MiB (as measured while preparing, one run each).
constexpr double kLittleMemory = 1.15;

// By how much rounding moves a program. A step of MobileNetV2 at batch 8 was moved by 1.5e-4 in one
// run and by 2.7e-2 in another.
constexpr int kRoundings = 4;

// The framework's plan and ours, and the instance that ours stays in.
constexpr size_t kRunsSideBySide = 3;

constexpr double kNotMeasured = std::numeric_limits<double>::max();

bool uses_winograd(const Plan& plan, TaskId task) {
  const KernelId kernel = plan.graph.ops[task.index].kernel;
  return kernel.valid() &&
         plan.kernels[kernel.index].kernel->name().find("winograd") != std::string::npos;
}

class Preparation {
 public:
  Preparation(Recording recording, const std::vector<at::Tensor>& inputs, const Options& options,
              const TensorFunction& function, const LiveFunction& live, bool with_gradients)
      : shared_recording_(std::make_shared<Recording>(std::move(recording))),
        recording_(*shared_recording_),
        options_(options),
        function_(function),
        live_(live),
        with_gradients_(with_gradients),
        runs_(recording_, inputs, options_, with_gradients),
        recorded_(runs_.recorded()) {
    for (const RecordedCall& call : recording_.calls)
      has_backward_ |= call.op.operator_name().name.find("backward") != std::string::npos;
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
      const SavedState::Checkpoint checkpoint(runs_.state());
      result_.device = capture_on_cuda({*result_.plan, runs_.inputs(), options_});
    }
    result_.schedule = result_.device->planned();
    result_.report.many_streams = result_.schedule.built.schedule.streams.size() > 1;
    result_.report.why_framework_kernels = "on CUDA there are none of ours";
    result_.report.plan_ms = microseconds_since(start) / 1000;
    const Observed run = runs_.run(*result_.device, runs_.inputs(), recorded_.live);
    if (const std::string name = first_difference(run, recorded_); !name.empty())
      throw Refused(message("cannot replay this program: ", name,
                            " of the replay differs from the recorded run. It does something that "
                            "is not a tensor operation"));
  }

  // Other plans of what was captured, each of which must give the same and measure faster. None is
  // needed: one that fails is dropped.
  void consider_other_plans(const NamedTensors& names) {
    const Clock::time_point start = Clock::now();
    if (result_.schedule.built.schedule.streams.size() > 1)
      consider_on_device("ops in recorded order", kFrameworkTolerance, [&] {
        DeviceCandidate candidate{adopting_plan(shared_recording_)};
        candidate.launch_order = false;
        return candidate;
      });
    const bool rewrites = options_.native_kernels && recorded_.written.empty() &&
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
          kNativeTolerance, [&] { return in_channels_last(names, fused); }, &names);
    }
    result_.report.measure_ms = microseconds_since(start) / 1000;
  }

  // Goes over to our own kernels where there are some, if they give the same, on other values too,
  // and are not slower than the framework's. Else those have to give the same, and also where ours
  // were forgiven much.
  void use_native_kernels(const NamedTensors& names) {
    std::string& why_not = result_.report.why_framework_kernels;
    uses_native_ = options_.native_kernels;
    why_not = uses_native_ ? try_native_kernels(names) : "the framework's kernels were asked for";
    uses_native_ = why_not.empty();
    recorded_.outputs.clear();
    recorded_.written.clear();
    if (!uses_native_) {
      check_on_other_values();
      framework_instance();
    }
    on_others_.reset();
  }

  // Of the framework's own kernels. The recorded values may hide that the program does something
  // that is not an op: that shows here.
  void check_on_other_values() {
    if (others_are_checked_ || !on_others()) return;
    const Observed& expected = *on_others();
    Observed run;
    try {
      run = result_.device ? runs_.run(*result_.device, expected.inputs, expected.live)
                           : runs_.run(framework_instance(), expected.inputs, expected.live);
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
    if (workers() > 1 && !(result_.weights && options_.streams == 1) && has_memory_for(1)) {
      // Little memory stays in caches, much lets more run at once.
      const size_t limit = memory_limit();
      const size_t one_stream = result_.schedule.built.schedule.arena_bytes;
      const auto little = static_cast<size_t>(kLittleMemory * static_cast<double>(one_stream));
      if (one_stream < limit / 4 * 3) consider_many_streams(costs, little, inside);
      consider_many_streams(costs, limit, inside);
    }
    result_.report.measure_ms = microseconds_since(start) / 1000;
  }

  Prepared finish() { return std::move(result_); }

  PrepareReport& report() { return result_.report; }

 private:
  // A plan on our kernels. Memory for both its instance and the framework's is more than a large
  // step of training leaves: each is made when it is wanted, and the other one goes.
  struct Candidate {
    std::unique_ptr<Plan> plan;
    std::unique_ptr<Weights> weights;
    PlannedSchedule schedule;
    std::unique_ptr<Instance> instance;
    double tolerance = 0;
    bool is_last = false;          // there is no other way to plan it
    bool parts_are_right = false;  // as run_side_by_side found
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
    ConsideredPlan considered;
    considered.name = name;
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
        const SavedState::Checkpoint checkpoint(runs_.state());
        candidate.device = capture_on_cuda(
            {*candidate.plan, runs_.inputs(), options_, constants, candidate.launch_order});
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
      if (is_of_device(error)) runs_.run(*result_.device, runs_.inputs(), recorded_.live);
    }
    result_.report.considered.push_back(considered);
    return considered.kept;
  }

  // What is not within the tolerance of the recorded run or of the run on other values, or empty.
  std::string difference_on_device(DeviceReplay& device, double tolerance) {
    for (const Observed* expected : {&recorded_, on_others() ? &*on_others() : nullptr}) {
      if (!expected) continue;
      const Observed run = runs_.run(device, expected->inputs, expected->live);
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
      const SavedState::Checkpoint checkpoint(runs_.state());
      const std::vector<at::Tensor> inputs = runs_.fresh_inputs();
      return device_time_us([&] { device.run(inputs, recorded_.live); });
    };
    for (int round = 0; round < kRounds; ++round) {
      times_of_a.push_back(time_of_call(a));
      times_of_b.push_back(time_of_call(b));
    }
    return {quartile_after_first(times_of_a), quartile_after_first(times_of_b)};
  }

  // The program recorded once more, on images in channels_last: the framework's ops keep that.
  DeviceCandidate in_channels_last(const NamedTensors& names, bool fuse) {
    std::vector<at::Tensor> inputs = runs_.inputs();
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
      return std::make_shared<Recording>(record_calls(function_, inputs, names));
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
      if (!has_memory_for(kRunsSideBySide))
        return message("to compare ours with them takes ",
                       (kRunsSideBySide * runs_.bytes_of_a_run()) >> 20,
                       " MiB of memory, and only ", available_memory() >> 20, " are free");
      Candidate candidate = candidate_of(std::move(native.plan), names);
      candidate.tolerance = native.may_use_winograd ? kWinogradTolerance : kNativeTolerance;
      candidate.is_last = !native.may_use_winograd;
      difference = difference_from_framework(candidate);
      result_.report.plan_ms += microseconds_since(start) / 1000;
      if (!difference.empty()) {
        if (candidate.is_last) return difference;
        continue;
      }
      if (!native.framework_ops.empty() && !is_faster(instance_of(candidate))) {
        std::string left;
        for (const std::string& name : native.framework_ops) left += " " + name;
        return "the framework's kernels alone measured faster; no kernel of ours for" + left;
      }
      result_.report.select_ms = native.select_ms;
      result_.report.passes = std::move(native.passes);
      result_.report.distinct_ops = native.distinct_ops;
      instance_of(candidate);
      result_.instance = std::move(candidate.instance);
      result_.weights = std::move(candidate.weights);
      result_.plan = std::move(candidate.plan);
      result_.schedule = std::move(candidate.schedule);
      return "";
    }
    return difference;
  }

  // Whether so many more runs, with what they leave, can be held at once.
  bool has_memory_for(size_t runs) const {
    return runs * runs_.bytes_of_a_run() <= available_memory();
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
        kept_apart(build_one_stream(candidate.plan->graph, static_cast<size_t>(workers()), no_costs,
                                    candidate.plan->adopted),
                   options_.threads, memory_limit());
    return candidate;
  }

  Instance& instance_of(Candidate& candidate) {
    if (!candidate.instance) {
      candidate.instance = std::make_unique<Instance>(*candidate.plan, candidate.schedule,
                                                      options_.borrowed_outputs);
      candidate.instance->use(candidate.weights->current()->image);
    }
    return *candidate.instance;
  }

  // What is not within the tolerance of the recorded run or of the run on other values, or empty.
  std::string difference_from_framework(Candidate& candidate) {
    try {
      std::string found = difference_on(candidate, recorded_);
      if (!found.empty()) return found;
      if (candidate.is_last) {
        recorded_.outputs.clear();
        recorded_.written.clear();
      }
      if (!on_others()) return "";
      return difference_on(candidate, *on_others());
    } catch (const std::exception& error) {
      return message("our kernels fail: ", text_of(error));
    }
  }

  std::string difference_on(Candidate& candidate, Observed& expected) {
    std::vector<size_t> off;
    RoundingResponse response(expected);
    {
      result_.instance.reset();
      const Observed replayed = runs_.run(instance_of(candidate), expected.inputs, expected.live);
      if (replayed.outputs.size() != expected.outputs.size())
        return "it has not always as many outputs";
      for (size_t i = 0; i < expected.results(); ++i)
        if (!runs_.agrees(replayed, expected, i, candidate.tolerance)) off.push_back(i);
      if (off.empty()) return "";
      if (!has_backward_) {
        check_on_other_values();  // what follows forgives much
        return unexplained(response, replayed, expected, off, candidate.tolerance);
      }
      // Backward passes may amplify rounding until all digits are gone. So each part is judged by
      // itself, and of the whole only that most of it is not further off than chance has it.
      for (size_t i : off)
        if (!std::isfinite(response.difference(replayed, i)))
          return message("with our kernels ", runs_.name_of_result(i),
                         " is not finite where it should be");
      while (!response.explains_most(replayed)) {
        if (response.runs() == kRoundings)
          return "with our kernels most results are further from the framework's than other "
                 "rounding of inputs and parameters moves them";
        response.add(runs_.run_on_rounded(expected, policies_, result_.schedule, response.runs()));
      }
    }
    if (candidate.parts_are_right) return "";
    if (candidate.is_last && &expected == &recorded_) {
      expected.outputs.clear();
      expected.written.clear();
    }
    std::string found = difference_in_parts(candidate, expected);
    if (!found.empty()) return found;
    candidate.parts_are_right = true;
    candidate.instance.reset();
    check_on_other_values();
    return "";
  }

  // The first of these results that other rounding would not move as far, or empty.
  std::string unexplained(RoundingResponse& response, const Observed& replayed,
                          const Observed& expected, const std::vector<size_t>& results,
                          double tolerance) {
    for (size_t i : results) {
      const double difference = response.difference(replayed, i);
      while (!response.explains(difference, i) && response.runs() < kRoundings)
        response.add(runs_.run_on_rounded(expected, policies_, result_.schedule, response.runs()));
      if (response.explains(difference, i)) continue;
      return message("with our kernels ", runs_.name_of_result(i), " is not within ", tolerance,
                     " of the framework's, relative to the largest number: ",
                     difference / response.size(i), " (the framework's own moves by ",
                     response.own(i), " if inputs and parameters are rounded differently)");
    }
    return "";
  }

  // What kernels of ours get wrong on the values that the framework's make; or empty.
  std::string difference_in_parts(Candidate& candidate, const Observed& expected) {
    const Plan& ours = *candidate.plan;
    const std::vector<TaskId> our_order = serial_order(candidate.schedule.built.schedule);
    const std::vector<TaskId> recorded_order = serial_order(result_.schedule.built.schedule);
    const std::vector<SharedValue> values = shared_values(
        result_.plan->graph, ours.graph, our_order, recording_.trace.framework_peak_bytes / 2);
    const auto deviations_of =
        [&](const Plan& plan, Instance& follower, const std::vector<TaskId>& order,
            const std::vector<SharedValue>& shared, std::optional<int> rounding) {
          const Plan framework(std::make_shared<Recording>(on_copies(recording_)), policies_);
          Instance leader(framework, result_.schedule, options_.borrowed_outputs);
          const SavedState::Checkpoint checkpoint(runs_.state());
          leader.set_live(expected.live);
          follower.set_live(expected.live);
          return run_side_by_side(
              {framework, leader, recorded_order, runs_.copies_to_run_on(expected.inputs)},
              {plan, follower, order, runs_.copies_to_run_on(expected.inputs)}, shared,
              expected.before, rounding);
        };
    std::vector<Deviation> found =
        deviations_of(ours, instance_of(candidate), our_order, values, {});
    std::vector<double> tolerances(found.size(), kPartTolerance);
    for (size_t i = 0; i < values.size(); ++i)
      if (uses_winograd(ours, values[i].made_by)) tolerances[i] = kWinogradTolerance;
    candidate.instance.reset();
    PartsJudged judged(std::move(found), std::move(tolerances));
    const std::vector<SharedValue> same = as_recorded(values, result_.plan->graph);
    for (int variant = 0; variant < kRoundings && judged.worst(); ++variant) {
      const Plan rounded(std::make_shared<Recording>(on_rounded_copies(recording_, variant)),
                         policies_);
      Instance follower(rounded, result_.schedule, options_.borrowed_outputs);
      judged.add_rounded(deviations_of(rounded, follower, recorded_order, same, variant));
    }
    const std::optional<size_t> worst = judged.worst();
    if (!worst) return "";
    const std::string name = *worst < values.size() ? "what " + values[*worst].name + " makes"
                                                    : runs_.name_of_result(*worst - values.size());
    return message("on the same values ", name, " is not within ", judged.tolerance(*worst),
                   " of the framework's with our kernels, relative to the largest number: ",
                   judged.error(*worst), " (other rounding of the same values moves it by ",
                   judged.moved(*worst), ")");
  }

  // The first result that is not as expected, or empty.
  std::string first_difference(const Observed& run, const Observed& expected,
                               double tolerance = kFrameworkTolerance) const {
    for (size_t i = 0; i < recording_.trace.outputs.size() + expected.written.size(); ++i)
      if (!runs_.agrees(run, expected, i, tolerance)) return runs_.name_of_result(i);
    return "";
  }

  // A run of the program on other values, made when it is wanted first; none if there are no such.
  std::optional<Observed>& on_others() {
    if (!others_have_run_) on_others_ = runs_.run_on_other_values(function_, live_);
    others_have_run_ = true;
    return on_others_;
  }

  Instance& framework_instance() {
    if (!result_.instance)
      result_.instance =
          std::make_unique<Instance>(*result_.plan, result_.schedule, options_.borrowed_outputs);
    return *result_.instance;
  }

  // Than the framework's.
  bool is_faster(Instance& other) {
    const auto [present_us, other_us] = time_in_turns(framework_instance(), other);
    return other_us < present_us;
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
      const Observed run = runs_.run(*result_.instance, runs_.inputs(), recorded_.live);
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
    constexpr int kRuns = 4;
    constexpr double kLongUs = 100e3;
    const auto measure = [&](Instance& instance) {
      const Clock::time_point start = Clock::now();
      run_in_a_row(kRuns, [&](const std::vector<at::Tensor>& inputs) {
        for (const TaskTime& time : instance.run_timed(inputs)) {
          double& best = costs[time.task.index];
          best = std::min(best, static_cast<double>(time.end_ns - time.begin_ns));
        }
        return microseconds_since(start) < kLongUs;
      });
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

  void consider_many_streams(const std::vector<double>& costs, size_t memory_limit_bytes,
                             int threads_inside) {
    ManyStreams many = build_many_streams(
        result_.plan->graph, costs,
        {.workers = static_cast<size_t>(workers()), .memory_limit_bytes = memory_limit_bytes},
        result_.plan->adopted);
    if (many.built.schedule.streams.size() > 1)
      consider(std::move(many), threads_inside, memory_limit_bytes);
  }

  // Measures a schedule beside the present one, in turns, and keeps the faster.
  void consider(ManyStreams many, int threads_inside, size_t memory_limit_bytes) {
    PlannedSchedule candidate =
        kept_apart(std::move(many.built), threads_inside, memory_limit_bytes);
    auto instance = std::make_unique<Instance>(*result_.plan, candidate, options_.borrowed_outputs);
    if (result_.weights) instance->use(result_.weights->current()->image);
    const auto [present, other] = time_in_turns(*result_.instance, *instance);
    PrepareReport& report = result_.report;
    const bool is_first = report.many_streams_us == 0;
    const bool asked_for = options_.streams > 1 && !report.many_streams;
    const bool is_kept = asked_for || other <= kClearlyFaster * present;
    if (is_first) report.one_stream_us = present;
    if (!is_first && !is_kept) return;
    report.many_streams_us = other;
    report.makespan_us = many.makespan_ns / 1000;
    report.makespan_lower_bound_us = many.lower_bound_ns / 1000;
    if (!is_kept) return;
    report.many_streams = true;
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
    // Of runs that take seconds there are few: what warms up is little beside them.
    constexpr double kVeryLongUs = 3e6;
    constexpr double kClearly = 1.3;
    for (int round = 0; round < kMost; ++round) {
      if (round >= kFewest && microseconds_since(start) > kBudgetUs) break;
      if (round == 2 && microseconds_since(start) > kVeryLongUs) break;
      times_of_a.push_back(time_of(a));
      times_of_b.push_back(time_of(b));
      const auto [least, most] = std::minmax(times_of_a.back(), times_of_b.back());
      if (microseconds_since(start) > kVeryLongUs && most > kClearly * least) break;
      const bool is_long = microseconds_since(start) > kBudgetUs;
      if (round > 0 && is_long && times_of_b.back() > times_of_a.back()) break;
    }
    return {quartile_after_first(times_of_a), quartile_after_first(times_of_b)};
  }

  // Of the second of two runs, if they are short: the first finds the caches full of copies, the
  // next call will not.
  double time_of(Instance& instance) {
    constexpr double kShortUs = 300e3;
    double time = 0;
    run_in_a_row(2, [&](const std::vector<at::Tensor>& inputs) {
      const Clock::time_point start = Clock::now();
      instance.run(inputs);
      time = microseconds_since(start);
      return time < kShortUs;
    });
    return time;
  }

  // Each run but the first on what the one before has left, as in a loop of the user's, until one
  // says that it is enough. What the program has written may be nothing that it can work on (the
  // factors of a matrix in its place): then the runs before count.
  template <class Run>
  void run_in_a_row(int count, const Run& run) {
    for (const auto& reshaped : recording_.input_reshaped)
      if (reshaped) count = 1;  // the next run would find it so
    const SavedState::Checkpoint checkpoint(runs_.state());
    const std::vector<at::Tensor> inputs = runs_.fresh_inputs();
    bool goes_on = run(inputs);
    try {
      for (int i = 1; i < count && goes_on; ++i) goes_on = run(inputs);
    } catch (const c10::Error&) {
    }
  }

  static double quartile_after_first(std::vector<double> times) {
    if (times.size() > 1) times.erase(times.begin());
    std::nth_element(times.begin(), times.begin() + times.size() / 4, times.end());
    return times[times.size() / 4];
  }

  std::shared_ptr<Recording> shared_recording_;
  Recording& recording_;
  Options options_;
  const TensorFunction& function_;
  const LiveFunction& live_;
  const bool with_gradients_;
  ObservedRuns runs_;
  Observed recorded_;                  // the recorded run; its results until ours were compared
  std::optional<Observed> on_others_;  // a run of the program on other values, see on_others()
  bool others_have_run_ = false;
  bool others_are_checked_ = false;     // with the framework's kernels
  bool has_backward_ = false;           // among the calls
  std::vector<ResultPolicy> policies_;  // of the framework's plan, by CallId
  Prepared result_;
  std::vector<CallId> misfits_;
  std::string difference_;
  bool uses_native_ = false;
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
  Preparation preparation(std::move(recording), inputs, options, function, live, with_gradients);
  preparation.report().record_ms = record_ms;
  if (preparation.is_on_device()) {
    preparation.capture_on_device();
    preparation.check_on_other_values();
    preparation.consider_other_plans(names);
    return preparation.finish();
  }
  preparation.plan();
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
