#include "nimble/graph/build.h"

#include <algorithm>

#include "nimble/base/error.h"
#include "nimble/graph/hazards.h"

namespace nimble {
namespace {

class GraphBuilder {
 public:
  explicit GraphBuilder(const Trace& trace) : trace_(trace), current_(trace.buffers.size()) {}

  Graph build() {
    graph_.views = trace_.views;
    for (const Call& call : trace_.calls) add_op(call);
    for (ViewId view : trace_.inputs) graph_.inputs.push_back({value_of(view).memory, view});
    for (ViewId view : trace_.outputs) graph_.outputs.push_back({value_of(view).memory, view});
    // Only the last memory of an output buffer leaves the program.
    for (const Port& port : graph_.outputs) graph_.memories[port.memory.index].is_output = true;
    graph_.first_joint_output = trace_.first_joint_output;
    graph_.edges = find_hazards(graph_);
    return std::move(graph_);
  }

 private:
  void add_op(const Call& call) {
    const OpId op(graph_.ops.size());
    graph_.ops.push_back({.name = call.op,
                          .module = call.module,
                          .source = call.source,
                          .operands = {},
                          .call = CallId(op.index),
                          .group = op.index});
    std::vector<Operand> operands;
    for (const Use& use : call.uses) {
      Operand operand;
      operand.view = use.view;
      operand.reads = use.reads;
      operand.writes = use.writes;
      if (use.reads) {
        operand.before = current_value(use.view);
        note_reader(operand.before, op);
      }
      operands.push_back(operand);
    }
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i].writes) write(op, call, operands[i]);
    for (Operand& operand : operands) {
      const ValueId value = operand.before.valid() ? operand.before : operand.after;
      operand.memory = graph_.values[value.index].memory;
    }
    graph_.ops[op.index].operands = std::move(operands);
  }

  void write(OpId op, const Call& call, Operand& operand) {
    const BufferId buffer = trace_.views[operand.view.index].buffer;
    if (!covers_buffer(operand.view)) {
      operand.after = current_value(operand.view);
      if (!operand.before.valid()) operand.before = operand.after;
      return;
    }
    const bool renames = trace_.buffers[buffer.index].role == Role::kIntermediate &&
                         !touches_otherwise(call, operand.view);
    if (!renames && !operand.before.valid()) operand.before = current_value(operand.view);
    const MemoryId memory =
        renames ? new_memory(buffer) : graph_.values[operand.before.index].memory;
    const ValueId current = current_[buffer.index];
    if (!renames && current.valid() && graph_.values[current.index].producer == op) {
      operand.after = current;  // the op writes it through two views
      return;
    }
    operand.after = new_value(memory, op);
    current_[buffer.index] = operand.after;
  }

  bool covers_buffer(ViewId view) const {
    const TensorDesc& desc = trace_.views[view.index].desc;
    return desc.begin_byte() == 0 && desc.is_dense() &&
           desc.end_byte() == static_cast<int64_t>(trace_.buffer_of(view).bytes);
  }

  // Whether the call touches the buffer by more than this one pure overwrite.
  bool touches_otherwise(const Call& call, ViewId view) const {
    const BufferId buffer = trace_.views[view.index].buffer;
    size_t uses = 0;
    bool reads = false;
    for (const Use& use : call.uses) {
      if (trace_.views[use.view.index].buffer != buffer) continue;
      ++uses;
      reads |= use.reads;
    }
    return reads || uses > 1;
  }

  ValueId current_value(ViewId view) {
    const BufferId buffer = trace_.views[view.index].buffer;
    ValueId& value = current_[buffer.index];
    if (!value.valid()) value = new_value(new_memory(buffer), OpId());
    return value;
  }

  const Value& value_of(ViewId view) { return graph_.values[current_value(view).index]; }

  void note_reader(ValueId value, OpId op) {
    std::vector<OpId>& readers = graph_.values[value.index].readers;
    if (readers.empty() || readers.back() != op) readers.push_back(op);
  }

  MemoryId new_memory(BufferId buffer) {
    const Buffer& described = trace_.buffers[buffer.index];
    graph_.memories.push_back({described.bytes, described.role, buffer, false});
    return MemoryId(graph_.memories.size() - 1);
  }

  ValueId new_value(MemoryId memory, OpId producer) {
    graph_.values.push_back({memory, producer, {}});
    return ValueId(graph_.values.size() - 1);
  }

  const Trace& trace_;
  Graph graph_;
  std::vector<ValueId> current_;  // by buffer
};

}  // namespace

Graph build_graph(const Trace& trace) {
  return GraphBuilder(trace).build();
}

}  // namespace nimble
