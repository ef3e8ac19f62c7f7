#include "nimble/graph/dump.h"

#include <sstream>

#include "nimble/base/error.h"

namespace nimble {
namespace {

// "convolution 3x3 relu": what an op of ours does, with the size of its kernel.
std::string title(const Graph& graph, const Op& op) {
  if (!op.attributes) return op.name;
  std::string text = describe(*op.attributes);
  const std::string convolution = "convolution";
  const size_t at = text.find(convolution);
  const bool has_kernel = std::holds_alternative<Convolution>(*op.attributes) ||
                          std::holds_alternative<SeparableConvolution>(*op.attributes);
  if (!has_kernel || at == std::string::npos || op.operands.size() < 2) return text;
  const auto& weight = graph.desc_of(op.operands[1]).sizes;
  if (weight.size() != 4) return text;
  return text.insert(at + convolution.size(), message(" ", weight[2], "x", weight[3]));
}

// How a memory is called that constant ops write or read: by its value, if an op of the program
// reads it.
class ConstantNames {
 public:
  explicit ConstantNames(const Graph& graph) : values_(graph.memories.size()) {
    for (size_t v = 0; v < graph.values.size(); ++v)
      if (!graph.values[v].producer.valid()) values_[graph.values[v].memory.index] = ValueId(v);
  }

  std::string operator()(MemoryId memory) const {
    const ValueId value = values_[memory.index];
    return value.valid() ? message("%", value.index) : message("memory", memory.index);
  }

 private:
  std::vector<ValueId> values_;
};

template <class Name>
void write_op(std::ostream& out, const Graph& graph, const Op& op, const Name& name) {
  const char* separator = "";
  for (const Operand& operand : op.operands) {
    if (!operand.writes) continue;
    out << separator << name(operand, true);
    if (operand.after.valid() && operand.after == operand.before) out << " (in part)";
    separator = ", ";
  }
  if (*separator) out << " = ";
  out << title(graph, op) << "(";
  separator = "";
  for (const Operand& operand : op.operands) {
    if (!operand.reads) continue;
    out << separator << name(operand, false) << ": " << graph.desc_of(operand).to_string();
    separator = ", ";
  }
  out << ")";
  if (op.part)
    out << " rows " << op.part->row_begin << "-" << op.part->row_end << " columns "
        << op.part->column_begin << "-" << op.part->column_end;
  if (!op.module.empty()) out << "  # " << op.module;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string dump_text(const Graph& graph) {
  std::ostringstream out;
  std::vector<std::vector<uint32_t>> after(graph.ops.size());
  for (const Edge& edge : graph.edges) after[edge.after.index].push_back(edge.before.index);
  const auto value_of = [](const Operand& operand, bool written) {
    return message("%", (written ? operand.after : operand.before).index);
  };
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    out << i << ": ";
    write_op(out, graph, graph.ops[i], value_of);
    const char* separator = "  after ";
    for (uint32_t before : after[i]) {
      out << separator << before;
      separator = ", ";
    }
    out << "\n";
  }
  if (graph.constant_ops.empty()) return out.str();
  out << "ahead of time:\n";
  const ConstantNames names(graph);
  const auto name_of = [&](const Operand& operand, bool) { return names(operand.memory); };
  for (const Op& op : graph.constant_ops) {
    out << "  ";
    write_op(out, graph, op, name_of);
    out << "\n";
  }
  return out.str();
}

std::string dump_dot(const Graph& graph) {
  std::ostringstream out;
  out << "digraph nimble {\n  node [shape=box, fontname=monospace];\n";
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const std::string label = std::to_string(i) + " " + title(graph, op);
    out << "  op" << i << " [label=" << quoted(label) << ", tooltip=" << quoted(op.module)
        << "];\n";
  }
  for (const Edge& edge : graph.edges)
    out << "  op" << edge.before.index << " -> op" << edge.after.index << ";\n";
  out << "}\n";
  return out.str();
}

}  // namespace nimble
