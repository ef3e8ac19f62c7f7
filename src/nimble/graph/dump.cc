#include "nimble/graph/dump.h"

#include <sstream>

namespace nimble {
namespace {

void write_operands(std::ostream& out, const Graph& graph, const Op& op) {
  const char* separator = "";
  for (const Operand& operand : op.operands) {
    if (!operand.reads) continue;
    out << separator << "%" << operand.before.index << ": "
        << graph.views[operand.view.index].desc.to_string();
    separator = ", ";
  }
}

void write_results(std::ostream& out, const Op& op) {
  const char* separator = "";
  for (const Operand& operand : op.operands) {
    if (!operand.writes) continue;
    out << separator << "%" << operand.after.index;
    if (operand.after == operand.before) out << " (in part)";
    separator = ", ";
  }
  if (*separator) out << " = ";
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
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    out << i << ": ";
    write_results(out, op);
    out << op.name << "(";
    write_operands(out, graph, op);
    out << ")";
    if (!op.module.empty()) out << "  # " << op.module;
    const char* separator = "  after ";
    for (uint32_t before : after[i]) {
      out << separator << before;
      separator = ", ";
    }
    out << "\n";
  }
  return out.str();
}

std::string dump_dot(const Graph& graph) {
  std::ostringstream out;
  out << "digraph nimble {\n  node [shape=box, fontname=monospace];\n";
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const std::string label = std::to_string(i) + " " + op.name;
    out << "  op" << i << " [label=" << quoted(label) << ", tooltip=" << quoted(op.module)
        << "];\n";
  }
  for (const Edge& edge : graph.edges)
    out << "  op" << edge.before.index << " -> op" << edge.after.index << ";\n";
  out << "}\n";
  return out.str();
}

}  // namespace nimble
