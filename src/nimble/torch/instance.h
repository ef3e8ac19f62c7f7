#pragma once

#include <ATen/ATen.h>

#include <deque>
#include <memory>
#include <vector>

#include "nimble/runtime/fetch_plan.h"
#include "nimble/runtime/replayer.h"
#include "nimble/schedule/schedule.h"
#include "nimble/torch/framework_task.h"
#include "nimble/torch/memory_slot.h"
#include "nimble/torch/native_task.h"
#include "nimble/torch/plan.h"
#include "nimble/torch/replay_guard.h"
#include "nimble/torch/result_memory.h"
#include "nimble/torch/weights.h"

namespace nimble {

// A plan with memory: an arena, tasks whose arguments point into it, and a replayer. Weights, the
// user's and packed ones, are shared by all instances. One call at a time. `plan` must outlive it.
class Instance {
 public:
  Instance(const Plan& plan, const PlannedSchedule& planned, bool borrowed_outputs);
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  // Takes constants from there in the next runs; must outlive them.
  void use(const WeightImage& weights);
  // Numbers that the next runs are given, by live value; those of the recorded run at first.
  void set_live(c10::ArrayRef<double> values);
  // Inputs must have been checked. They are used where they are if their strides are the recorded
  // ones, and copied otherwise.
  std::vector<at::Tensor> run(c10::ArrayRef<at::Tensor> inputs);
  // As run(), and says when each task ran.
  std::vector<TaskTime> run_timed(c10::ArrayRef<at::Tensor> inputs);
  // A run one task at a time, see below.
  class Steps;
  // After a run: calls whose results did not get where the plan has them.
  std::vector<CallId> misfits() const;

 private:
  void set_live_numbers(c10::ArrayRef<double> values);
  void make_slots(const PlannedSchedule& planned);
  void make_tasks();
  void make_framework_task(OpId op);
  void make_native_task(OpId op);
  void plan_fetches(const Schedule& schedule);
  template <class TaskType>
  void release_after(OpId op, TaskType& task);
  at::Tensor tensor_for(OpId op, ViewId view);
  MemorySlot& slot_for(OpId op, ViewId view);
  MemoryId memory_for(OpId op, ViewId view) const;
  at::Tensor tensor_on(MemoryId memory, ViewId view);

  void bind_inputs(c10::ArrayRef<at::Tensor> inputs);
  void bind_outputs();
  void bind_results();
  bool is_own_output(const at::Tensor& input) const;
  std::vector<at::Tensor> collect_outputs(c10::ArrayRef<at::Tensor> inputs);
  void release_results();
  template <class Replay>
  auto replay(c10::ArrayRef<at::Tensor> inputs, const Replay& replay);

  const Plan& plan_;
  const int intra_op_threads_;
  const bool borrowed_outputs_;
  PageMemory arena_;  // without the results
  std::shared_ptr<ResultMemory> results_;
  std::deque<MemorySlot> slots_;  // by MemoryId
  std::deque<FrameworkTask> framework_tasks_;
  std::vector<CallId> framework_calls_;  // beside framework_tasks_
  std::vector<FrameworkTask*> live_tasks_;
  std::vector<double> live_values_;
  std::vector<float> live_numbers_;  // the same, as kernels read them
  std::deque<NativeTask> native_tasks_;
  std::vector<WeightUse> fetches_;     // beside native_tasks_
  std::vector<TaskBinding> bindings_;  // by OpId
  std::vector<MemoryId> folded_memories_;
  uint64_t weights_ = 0;                                               // which image is in use
  std::vector<std::vector<std::pair<MemoryId, at::Tensor>>> tensors_;  // by ViewId
  std::vector<MemoryId> output_memories_;  // intermediates that leave; each once
  struct PlacedResult {
    MemorySlot* slot;
    size_t offset;
    bool leaves;  // or is overwritten by one that does
  };
  std::vector<PlacedResult> placed_results_;
  std::vector<MemoryId> adopted_memories_;
  std::vector<at::Tensor> staging_;  // by input; where its strides differ from the recorded
  std::unique_ptr<Replayer> replayer_;
};

// A run of which the caller says when each task is due, and who may look at memories and change
// them in between. On this thread; steps of several instances must end in the reverse order of
// their beginning.
class Instance::Steps {
 public:
  // `inputs` as of run().
  Steps(Instance& instance, std::vector<at::Tensor> inputs);
  ~Steps() { instance_.release_results(); }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  // All tasks have to run once, each in an order that the schedule allows on one thread.
  void run(OpId task) {
    instance_.bindings_[task.index].run(instance_.bindings_[task.index].context);
  }
  // Where a memory is now. Only between its first write and its last use, unless it is an output.
  const c10::Storage& memory(MemoryId memory) const {
    return instance_.slots_[memory.index].storage;
  }
  // Behind the last task.
  std::vector<at::Tensor> outputs() { return instance_.collect_outputs(inputs_); }

 private:
  Instance& instance_;
  const std::vector<at::Tensor> inputs_;
  const ReplayGuard guard_;
};

}  // namespace nimble
