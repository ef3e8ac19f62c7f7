#include "nimble/graph/validate.h"

#include <algorithm>

#include "nimble/base/error.h"

namespace nimble {
namespace {

class Validator {
 public:
  explicit Validator(const Graph& graph) : graph_(graph) {}

  std::vector<std::string> run() {
    check_ids();
    if (!faults_.empty()) return faults_;  // what follows would index out of range
    check_operands();
    check_values();
    check_order();
    return faults_;
  }

 private:
  template <class... Parts>
  void fault(const Parts&... parts) {
    faults_.push_back(message(parts...));
  }

  void check_ids() {
    for (const Value& value : graph_.values) {
      if (value.memory.index >= graph_.memories.size()) fault("a value names no memory");
      if (value.producer.valid() && value.producer.index >= graph_.ops.size())
        fault("a value names no producer");
    }
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      for (const Operand& operand : graph_.ops[i].operands) {
        if (operand.memory.index >= graph_.memories.size() ||
            operand.view.index >= graph_.views.size() ||
            (operand.before.valid() && operand.before.index >= graph_.values.size()) ||
            (operand.after.valid() && operand.after.index >= graph_.values.size()))
          fault("op ", i, " (", graph_.ops[i].name, ") has an operand out of range");
      }
    }
    for (const Edge& edge : graph_.edges)
      if (edge.before.index >= edge.after.index || edge.after.index >= graph_.ops.size())
        fault("edge ", edge.before.index, " -> ", edge.after.index, " does not go forward");
  }

  void check_operands() {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      for (const Operand& operand : graph_.ops[i].operands) {
        const TensorDesc& desc = graph_.desc_of(operand);
        const ByteSet touched = graph_.bytes_touched(operand);
        const Memory& memory = graph_.memories[operand.memory.index];
        if (desc.begin_byte() < 0 || desc.end_byte() > static_cast<int64_t>(memory.bytes) ||
            (!touched.empty() &&
             (touched.begin < desc.begin_byte() || touched.end > desc.end_byte())))
          fault("op ", i, " (", graph_.ops[i].name, ") reaches outside its memory");
        for (ValueId value : {operand.before, operand.after})
          if (value.valid() && graph_.values[value.index].memory != operand.memory)
            fault("op ", i, " (", graph_.ops[i].name, ") names a value of another memory");
        if (operand.reads && !operand.before.valid())
          fault("op ", i, " (", graph_.ops[i].name, ") reads nothing");
        if (operand.writes != operand.after.valid())
          fault("op ", i, " (", graph_.ops[i].name, ") writes without leaving a value");
      }
    }
  }

  void check_values() {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      for (OpId reader : value.readers) {
        const auto& operands = graph_.ops[reader.index].operands;
        if (std::none_of(operands.begin(), operands.end(),
                         [&](const Operand& o) { return o.before == ValueId(v) && o.reads; }))
          fault("value ", v, " lists a reader that does not read it");
      }
      if (!value.producer.valid()) continue;
      const auto& operands = graph_.ops[value.producer.index].operands;
      if (std::none_of(operands.begin(), operands.end(),
                       [&](const Operand& o) { return o.after == ValueId(v); }))
        fault("value ", v, " lists a producer that does not write it");
    }
  }

  void check_order() {
    const size_t n = graph_.ops.size();
    std::vector<std::vector<bool>> reaches(n, std::vector<bool>(n));
    std::vector<std::vector<uint32_t>> successors(n);
    for (const Edge& edge : graph_.edges) successors[edge.before.index].push_back(edge.after.index);
    for (size_t i = n; i-- > 0;) {
      for (uint32_t next : successors[i]) {
        reaches[i][next] = true;
        for (size_t j = next; j < n; ++j)
          if (reaches[next][j]) reaches[i][j] = true;
      }
    }
    for (size_t i = 0; i < n; ++i)
      for (size_t j = i + 1; j < n; ++j)
        if (!reaches[i][j] && conflict(graph_.ops[i], graph_.ops[j]))
          fault("op ", i, " (", graph_.ops[i].name, ") and op ", j, " (", graph_.ops[j].name,
                ") conflict and are not ordered");
  }

  bool conflict(const Op& first, const Op& second) const {
    for (const Operand& a : first.operands) {
      for (const Operand& b : second.operands) {
        if (a.memory != b.memory || !(a.writes || b.writes)) continue;
        if (graph_.bytes_touched(a).may_overlap(graph_.bytes_touched(b))) return true;
      }
    }
    return false;
  }

  const Graph& graph_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> validate_graph(const Graph& graph) {
  return Validator(graph).run();
}

}  // namespace nimble
