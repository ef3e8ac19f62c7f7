#include "nimble/torch/import_ops.h"

#include <algorithm>

#include "nimble/base/error.h"
#include "nimble/graph/relink.h"
#include "nimble/torch/import_elementwise.h"
#include "nimble/torch/import_table.h"
#include "nimble/torch/op_semantics.h"

namespace nimble {
namespace {

class Importer {
 public:
  Importer(const Recording& recording, const Graph& graph)
      : recording_(recording),
        graph_(graph),
        memory_of_value_(graph.values.size()),
        memory_of_(graph.memories.size()),
        last_value_(graph.memories.size()),
        needed_(graph.values.size()) {
    imported_.views = graph.views;
    imported_.first_joint_output = graph.first_joint_output;
    std::vector<bool> is_output(graph.memories.size());
    for (const Port& port : graph.outputs) is_output[port.memory.index] = true;
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const MemoryId memory = graph.values[v].memory;
      last_value_[memory.index] = ValueId(v);
      const bool stays = is_output[memory.index] || is_of_the_user(memory);
      needed_[v] = stays || !graph.values[v].readers.empty();
    }
  }

  Graph run(const std::function<bool(const Op&)>& only) {
    for (size_t v = 0; v < graph_.values.size(); ++v)
      if (!graph_.values[v].producer.valid()) memory_of_value_[v] = memory_of(graph_.values[v]);
    for (const Op& op : graph_.ops)
      if ((only && !only(op)) || !import(op)) keep(op);
    for (const Port& port : graph_.inputs) imported_.inputs.push_back({original(port), port.view});
    add_updates();
    for (const Port& port : graph_.outputs) {
      const ValueId last = last_value_[port.memory.index];
      const bool is_new = last.valid() && !is_of_the_user(port.memory);
      const MemoryId memory = is_new ? memory_of_value_[last.index] : original(port);
      imported_.outputs.push_back({memory, port.view});
      imported_.memories[memory.index].is_output = true;
    }
    for (size_t i = 0; i < imported_.ops.size(); ++i)
      imported_.ops[i].group = static_cast<uint32_t>(i);
    relink(imported_);
    return std::move(imported_);
  }

 private:
  bool is_of_the_user(MemoryId recorded) const {
    const Role role = graph_.memories[recorded.index].role;
    return role == Role::kExternal || role == Role::kInput;
  }

  // What ops of ours made of memories of the user.
  void add_updates() {
    for (size_t m = 0; m < graph_.memories.size(); ++m) {
      const ValueId last = last_value_[m];
      if (!is_of_the_user(MemoryId(m)) || !last.valid()) continue;
      const MemoryId target = memory_of(MemoryId(m));
      const MemoryId value = memory_of_value_[last.index];
      if (!value.valid() || value == target) continue;
      imported_.memories[target.index].is_updated = true;
      imported_.memories[value.index].is_output = true;
      imported_.updates.push_back({target, {value, whole_view(imported_.memories[value.index])}});
    }
  }

  ViewId whole_view(const Memory& memory) {
    const DType bytes{.code = 0, .bytes = 1, .name = "uint8"};
    return add_view(imported_, row_major(bytes, {static_cast<int64_t>(memory.bytes)}));
  }

  MemoryId memory_of(const Value& value) { return memory_of(value.memory); }

  // The memory that stands for a recorded one, where no op of ours made a new one.
  MemoryId memory_of(MemoryId recorded) {
    MemoryId& memory = memory_of_[recorded.index];
    if (!memory.valid()) {
      imported_.memories.push_back(graph_.memories[recorded.index]);
      imported_.memories.back().is_output = false;
      memory = MemoryId(imported_.memories.size() - 1);
    }
    return memory;
  }
  MemoryId original(const Port& port) { return memory_of(port.memory); }

  bool import(const Op& op) {
    if (!may_be_reordered(op)) return false;
    CallReader call(recording_, op, graph_, imported_, memory_of_value_, needed_, live_memory_);
    if (import_elementwise(op.name, call)) return true;
    if (!recording_.calls[op.call.index].live.empty()) return false;  // other numbers are fixed
    for (const ImportTable* table :
         {&inference_imports(), &training_imports(), &transformer_imports()})
      if (const auto known = table->find(op.name); known != table->end())
        return known->second(call);
    return false;
  }

  // Memory without bytes stands for an order that operands do not show: that of random ops, and of
  // tensors that share memory in ways we do not see. Attention is listed among the former.
  bool may_be_reordered(const Op& op) const {
    const auto orders =
        std::count_if(op.operands.begin(), op.operands.end(), [&](const Operand& operand) {
          return graph_.memories[operand.memory.index].role == Role::kGenerator;
        });
    const auto& handle = recording_.calls[op.call.index].op;
    return orders == (semantics_of(handle).draws_random_numbers ? 1 : 0);
  }

  // A framework call stays what it is, on the memories that its values are in now.
  void keep(const Op& op) {
    Op kept = op;
    for (Operand& operand : kept.operands) {
      if (operand.before.valid()) operand.memory = memory_of_value_[operand.before.index];
      if (!operand.writes) {
        if (!operand.before.valid()) operand.memory = memory_of(operand.memory);
        continue;
      }
      MemoryId& after = memory_of_value_[operand.after.index];
      if (operand.before.valid())
        after = operand.memory;
      else if (!after.valid()) {
        after = memory_of(operand.memory);
        imported_.memories[after.index].recorded = operand.after;
      }
      operand.memory = after;
    }
    imported_.ops.push_back(std::move(kept));
  }

  const Recording& recording_;
  const Graph& graph_;
  Graph imported_;
  std::vector<MemoryId> memory_of_value_;
  std::vector<MemoryId> memory_of_;  // by recorded memory
  std::vector<ValueId> last_value_;  // by recorded memory
  std::vector<bool> needed_;         // by value: somebody reads it, or it leaves the program
  MemoryId live_memory_;             // of the imported graph, if there are live numbers
};

}  // namespace

Graph import_ops(const Recording& recording, const Graph& graph,
                 const std::function<bool(const Op&)>& only) {
  return Importer(recording, graph).run(only);
}

}  // namespace nimble
