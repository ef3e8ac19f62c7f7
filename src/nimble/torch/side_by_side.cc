#include "nimble/torch/side_by_side.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "nimble/base/error.h"
#include "nimble/passes/rewrite.h"
#include "nimble/torch/compare.h"
#include "nimble/torch/rounding.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// When a memory is written and read, as places in an order of tasks.
struct Times {
  size_t first_write = SIZE_MAX;
  size_t last_write = 0;
  size_t first_read = SIZE_MAX;
  bool is_updated = false;  // by an op that reads what it changes
  bool by_ours = false;
  bool by_framework = false;
  DType dtype;  // as it is written
};

std::vector<Times> times_of(const Graph& graph, const std::vector<TaskId>& order) {
  std::vector<Times> times(graph.memories.size());
  for (size_t place = 0; place < order.size(); ++place) {
    const Op& op = graph.ops[order[place].index];
    for (const Operand& operand : op.operands) {
      Times& time = times[operand.memory.index];
      if (operand.reads) time.first_read = std::min(time.first_read, place);
      if (!operand.writes) continue;
      time.first_write = std::min(time.first_write, place);
      time.last_write = place;
      time.is_updated |= operand.reads;
      (op.attributes ? time.by_ours : time.by_framework) = true;
      time.dtype = graph.desc_of(operand).dtype;
    }
  }
  return times;
}

// What the op that makes a value writes; null if it is not one op's, or not for long enough.
const Operand* making(const Graph& recorded, ValueId id) {
  const Value& value = recorded.values[id.index];
  if (!value.producer.valid()) return nullptr;
  if (value.readers.empty() && !recorded.memories[value.memory.index].is_output) return nullptr;
  for (const Operand& operand : recorded.ops[value.producer.index].operands)
    if (operand.after == id && operand.writes) return &operand;
  return nullptr;
}

// By value: whether an op changes a part of it later.
std::vector<bool> changed_in_parts(const Graph& recorded) {
  std::vector<bool> changed(recorded.values.size());
  for (const Op& op : recorded.ops)
    for (const Operand& operand : op.operands)
      if (operand.writes && operand.before.valid() && operand.before == operand.after)
        changed[operand.after.index] = true;
  return changed;
}

// A value is kept from its turn in the recorded program to that of the rewritten one. Leaves out
// those that hold up too many others.
void leave_out_displaced(std::vector<SharedValue>& values, const Graph& recorded,
                         size_t most_bytes_kept) {
  const auto producer = [&](const SharedValue& v) {
    return recorded.values[v.value.index].producer;
  };
  std::vector<SharedValue> kept;
  for (size_t i = 0; i < values.size(); ++i) {
    size_t bytes = 0;
    for (size_t j = i + 1; j < values.size() && bytes <= most_bytes_kept; ++j)
      if (producer(values[j]) < producer(values[i]))
        bytes += recorded.memories[recorded.values[values[j].value.index].memory.index].bytes;
    if (bytes <= most_bytes_kept) kept.push_back(std::move(values[i]));
  }
  values = std::move(kept);
}

bool is_float(const DType& dtype) {
  return dtype.code == static_cast<int8_t>(at::kFloat);
}

// The numbers that differ; those that are not finite must be the same.
double difference_of(const at::Tensor& a, const at::Tensor& b) {
  const double fast = distance(a, b);
  if (std::isfinite(fast)) return fast;
  const at::Tensor same = a.eq(b).logical_or_(a.isnan().logical_and_(b.isnan()));
  const at::Tensor apart = (a - b).abs().masked_fill_(same, 0);
  return apart.isfinite().all().item<bool>() ? apart.max().item<double>() : kInfinite;
}

Deviation deviation_of_result(const at::Tensor& leader, const at::Tensor& follower) {
  if (leader.sizes() != follower.sizes() || leader.scalar_type() != follower.scalar_type())
    return {0, kInfinite};
  if (!leader.is_floating_point()) return {0, same_bytes(leader, follower) ? 0 : kInfinite};
  if (leader.numel() == 0) return {};
  return {largest_finite(leader), difference_of(leader, follower)};
}

// Of how far the framework's own kernels move: rounding of one element is chance, and kernels may
// add up in another order.
constexpr double kRoundingFactor = 16;

class SideBySide {
 public:
  SideBySide(const Side& leader, const Side& follower, const std::vector<SharedValue>& values,
             std::optional<int> rounding)
      : leader_(leader),
        follower_(follower),
        values_(values),
        rounding_(rounding),
        leading_(leader.instance, leader.inputs),
        following_(follower.instance, follower.inputs),
        made_by_leader_(leader.plan.graph.ops.size()),
        made_by_follower_(follower.plan.graph.ops.size()),
        kept_(values.size()),
        deviations_(values.size()) {
    for (size_t i = 0; i < values.size(); ++i) {
      const OpId producer = leader.plan.graph.values[values[i].value.index].producer;
      made_by_leader_[producer.index].push_back(i);
      made_by_follower_[values[i].made_by.index].push_back(i);
    }
  }

  void run() {
    for (const TaskId task : follower_.order) {
      following_.run(OpId(task.index));
      for (size_t i : made_by_follower_[task.index]) meet(i);
    }
    while (next_ < leader_.order.size()) lead();
  }

  std::vector<Deviation> compare(const std::vector<at::Tensor>& before) {
    const std::vector<at::Tensor> outputs = leading_.outputs();
    const std::vector<at::Tensor> others = following_.outputs();
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool counts = !leader_.plan.recording.output_is_uninitialised[i];
      deviations_.push_back(counts ? deviation_of_result(outputs[i], others[i]) : Deviation());
    }
    const auto written = written_tensors(leader_.plan.recording, leader_.inputs);
    const auto written_by_other = written_tensors(follower_.plan.recording, follower_.inputs);
    for (size_t i = 0; i < written.size(); ++i) {
      Deviation deviation = deviation_of_result(written[i], written_by_other[i]);
      if (written[i].is_floating_point()) {
        deviation.size = largest_change(before[i], written[i]);
        deviation.difference = std::max(0.0, deviation.difference - rounding_of_change(written[i]));
      }
      deviations_.push_back(deviation);
    }
    return std::move(deviations_);
  }

 private:
  void lead() {
    const TaskId task = leader_.order.at(next_++);
    leading_.run(OpId(task.index));
    for (size_t i : made_by_leader_[task.index]) {
      const MemoryId memory = leader_.plan.graph.values[values_[i].value.index].memory;
      kept_[i] = bytes_of_storage(leading_.memory(memory)).clone();
    }
  }

  void meet(size_t i) {
    while (!kept_[i].defined()) lead();
    const c10::Storage right = std::exchange(kept_[i], {}).storage();
    const c10::Storage& found = following_.memory(values_[i].memory);
    const Graph& recorded = leader_.plan.graph;
    const DType& type = recorded.desc_of(*making(recorded, values_[i].value)).dtype;
    const auto& relayout = follower_.plan.graph.memories[values_[i].memory.index].relayout;
    const TensorDesc flat = row_major(type, {static_cast<int64_t>(right.nbytes()) / type.bytes});
    const at::Tensor leader = make_tensor(relayout ? relayout->from : flat, right);
    at::Tensor follower = make_tensor(relayout ? relayout->to : flat, found);
    if (values_[i].is_ours && is_float(type))
      deviations_[i] = {largest_finite(leader), difference_of(leader, follower)};
    follower.copy_(leader);
    if (rounding_ && is_float(type)) round_differently(found, *rounding_);
  }

  const Side& leader_;
  const Side& follower_;
  const std::vector<SharedValue>& values_;
  const std::optional<int> rounding_;
  Instance::Steps leading_;
  Instance::Steps following_;
  std::vector<std::vector<size_t>> made_by_leader_;    // by task: which values
  std::vector<std::vector<size_t>> made_by_follower_;  // likewise
  std::vector<at::Tensor> kept_;                       // by value: the leader's bytes
  std::vector<Deviation> deviations_;
  size_t next_ = 0;  // place of the leader
};

}  // namespace

std::vector<SharedValue> shared_values(const Graph& recorded, const Graph& rewritten,
                                       const std::vector<TaskId>& order, size_t most_bytes_kept) {
  const std::vector<Times> times = times_of(rewritten, order);
  const std::vector<bool> changed = changed_in_parts(recorded);
  std::vector<SharedValue> values;
  for (size_t m = 0; m < times.size(); ++m) {
    const Memory& memory = rewritten.memories[m];
    const Times& time = times[m];
    if (!memory.recorded.valid() || memory.role != Role::kIntermediate) continue;
    if (time.first_write == SIZE_MAX || time.is_updated || time.last_write >= time.first_read)
      continue;
    if (time.first_read == SIZE_MAX && !memory.is_output) continue;
    if (time.by_ours && time.by_framework) continue;
    const Operand* made = making(recorded, memory.recorded);
    if (!made || changed[memory.recorded.index] ||
        recorded.memories[made->memory.index].bytes != memory.bytes ||
        !(recorded.desc_of(*made).dtype == time.dtype))
      continue;
    const TaskId task = order[time.last_write];
    values.push_back(
        {memory.recorded, MemoryId(m), task, time.by_ours, rewritten.ops[task.index].name});
  }
  const auto place = [&](const SharedValue& value) { return times[value.memory.index].last_write; };
  std::sort(values.begin(), values.end(),
            [&](const SharedValue& a, const SharedValue& b) { return place(a) < place(b); });
  leave_out_displaced(values, recorded, most_bytes_kept);
  return values;
}

std::vector<SharedValue> as_recorded(const std::vector<SharedValue>& values,
                                     const Graph& recorded) {
  std::vector<SharedValue> same = values;
  for (SharedValue& value : same) {
    const Value& made = recorded.values[value.value.index];
    value.memory = made.memory;
    value.made_by = TaskId(made.producer.index);
  }
  return same;
}

std::vector<Deviation> run_side_by_side(const Side& leader, const Side& follower,
                                        const std::vector<SharedValue>& values,
                                        const std::vector<at::Tensor>& before,
                                        std::optional<int> rounding) {
  SideBySide both(leader, follower, values, rounding);
  both.run();
  return both.compare(before);
}

PartsJudged::PartsJudged(std::vector<Deviation> found, std::vector<double> tolerances)
    : found_(std::move(found)), tolerances_(std::move(tolerances)), moved_(found_.size()) {
  NIMBLE_ASSERT(tolerances_.size() == found_.size());
}

void PartsJudged::add_rounded(const std::vector<Deviation>& deviations) {
  for (size_t i = 0; i < moved_.size(); ++i)
    moved_[i] = std::max(moved_[i], deviations[i].difference);
}

std::optional<size_t> PartsJudged::worst() const {
  std::optional<size_t> worst;
  for (size_t i = 0; i < found_.size(); ++i) {
    const auto [size, difference] = found_[i];
    if (difference <= std::max(tolerances_[i] * size, kRoundingFactor * moved_[i])) continue;
    if (!worst || error(i) > error(*worst)) worst = i;
  }
  return worst;
}

}  // namespace nimble
