#include "nimble/passes/merge_equal_ops.h"

#include <algorithm>
#include <map>
#include <utility>

#include "nimble/graph/relink.h"
#include "nimble/passes/rewrite.h"

namespace nimble {
namespace {

class EqualOps {
 public:
  explicit EqualOps(Graph& graph)
      : graph_(graph), uses_(graph), now_(graph.memories.size()), erased_(graph.ops.size()) {
    for (size_t m = 0; m < now_.size(); ++m) now_[m] = MemoryId(m);
  }

  // Returns whether anything changed.
  bool run() {
    bool changed = false;
    // By kind of op and what it reads first: few ops share that.
    std::map<std::pair<size_t, MemoryId>, std::vector<OpId>> seen;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      Op& op = graph_.ops[i];
      if (!op.attributes) continue;
      for (Operand& operand : op.operands)
        if (operand.reads) operand.memory = now_[operand.memory.index];
      if (!is_pure(OpId(i))) continue;
      auto& alike = seen[{op.attributes->index(), op.operands.front().memory}];
      const auto first = std::find_if(alike.begin(), alike.end(), [&](OpId earlier) {
        return equal(graph_.ops[earlier.index], op) && merge(earlier, OpId(i));
      });
      if (first == alike.end())
        alike.emplace_back(i);
      else
        changed = true;
    }
    if (changed) erase_ops(graph_, erased_);
    return changed;
  }

 private:
  bool is_pure(OpId id) const {
    const Op& op = graph_.ops[id.index];
    if (op.operands.empty() || !op.operands.front().reads) return false;
    return std::all_of(op.operands.begin(), op.operands.end(), [&](const Operand& operand) {
      return operand.writes ? uses_.sole_writer(operand.memory) == id && !operand.part_bytes
                            : uses_.is_stable(operand.memory);
    });
  }

  bool equal(const Op& a, const Op& b) const {
    if (a.operands.size() != b.operands.size() || !(a.attributes == b.attributes)) return false;
    for (size_t i = 0; i < a.operands.size(); ++i) {
      const Operand& x = a.operands[i];
      const Operand& y = b.operands[i];
      if (x.reads != y.reads || x.writes != y.writes) return false;
      if (x.reads && x.memory != y.memory) return false;
      if (!(graph_.desc_of(x) == graph_.desc_of(y))) return false;
      if (x.writes &&
          graph_.memories[x.memory.index].bytes != graph_.memories[y.memory.index].bytes)
        return false;
    }
    return true;
  }

  bool read_by_ours_only(MemoryId memory) const {
    const auto& readers = uses_.readers(memory);
    return std::all_of(readers.begin(), readers.end(), [&](OpId reader) {
      return graph_.ops[reader.index].attributes.has_value();
    });
  }

  // Lets readers of `second` read `first`. If only the second's result leaves the program, the
  // first takes over its memory.
  bool merge(OpId first, OpId second) {
    auto& kept = graph_.ops[first.index].operands;
    auto& dropped = graph_.ops[second.index].operands;
    for (size_t i = 0; i < kept.size(); ++i) {
      if (!kept[i].writes) continue;
      if (!read_by_ours_only(dropped[i].memory)) return false;
      if (!graph_.memories[dropped[i].memory.index].is_output) continue;
      if (graph_.memories[kept[i].memory.index].is_output || !read_by_ours_only(kept[i].memory))
        return false;
    }
    for (size_t i = 0; i < kept.size(); ++i) {
      if (!kept[i].writes) continue;
      if (graph_.memories[dropped[i].memory.index].is_output) take_over(first, i, dropped[i]);
      now_[dropped[i].memory.index] = kept[i].memory;
    }
    erased_[second.index] = true;
    return true;
  }

  void take_over(OpId first, size_t index, const Operand& output) {
    Operand& kept = graph_.ops[first.index].operands[index];
    const MemoryId old = std::exchange(kept.memory, output.memory);
    for (MemoryId& memory : now_)
      if (memory == old) memory = output.memory;
    // Those in between have been redirected already, to the old one.
    for (size_t i = first.index + 1; i < graph_.ops.size(); ++i) {
      Op& op = graph_.ops[i];
      if (!op.attributes) continue;
      for (Operand& operand : op.operands)
        if (operand.reads && operand.memory == old) operand.memory = output.memory;
    }
  }

  Graph& graph_;
  const Uses uses_;
  std::vector<MemoryId> now_;  // by memory: where its contents are now
  std::vector<bool> erased_;
};

}  // namespace

void merge_equal_ops(Graph& graph) {
  bool changed = false;
  while (EqualOps(graph).run()) changed = true;
  if (changed) relink(graph);
}

}  // namespace nimble
