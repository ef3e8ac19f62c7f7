#pragma once

#include <optional>
#include <vector>

#include "nimble/graph/relink.h"
#include "nimble/passes/rewrite.h"

namespace nimble {

// One sweep of a pass over the ops. `uses` is as of its beginning, so that it tells nothing
// reliable about an op that the sweep has touched: that one has to wait for the next sweep. Op ids
// stay valid during a sweep.
class Round {
 public:
  explicit Round(Graph& graph);

  Graph& graph;
  const Uses uses;

  Op& op(OpId id) const { return graph.ops[id.index]; }
  // Also true of no op, so that the result of a search can be passed on.
  bool touched(OpId id) const { return !id.valid() || touched_[id.index]; }
  bool changed() const { return changed_; }

  void replace(OpId id, Op op);
  void erase(OpId id);
  // Will stand in front of `id`, behind those that were put there before.
  void insert_before(OpId id, Op op);

  // The untouched op of ours that alone makes what an operand reads; none otherwise.
  OpId maker(const Operand& operand) const;
  // The same if nobody else reads it.
  OpId private_maker(const Operand& operand, OpId reader) const;

  // Where an op can stand that does what two did, the second reading a result of the first that
  // nobody else reads (or, if `shared`, somebody does): at one of their places. None: at neither.
  OpId place_for_both(OpId first, OpId second, bool shared = false) const;

  // A number for a new op that no other has.
  uint32_t new_group() { return next_group_++; }

  // Applies erasures and insertions; the round ends.
  void finish();

 private:
  std::vector<bool> touched_;
  std::vector<bool> erased_;
  std::vector<std::vector<Op>> ahead_;  // by op: those to insert before it
  bool changed_ = false;
  uint32_t next_group_ = 0;
};

// Sweeps until a sweep changes nothing. `visit(round, op)` is called for every op that is not
// touched, in program order.
template <class Visit>
void sweep_until_unchanged(Graph& graph, const Visit& visit) {
  bool changed_any = false;
  for (bool changed = true; changed;) {
    Round round(graph);
    for (size_t i = 0; i < graph.ops.size(); ++i)
      if (!round.touched(OpId(i))) visit(round, OpId(i));
    changed = round.changed();
    round.finish();
    changed_any = changed_any || changed;
  }
  if (changed_any) relink(graph);
}

// What a view of the op's result `made` is of the tensor `source` that has the same elements in
// place of the result (an op that copies, crops nothing and changes values only one by one).
std::optional<TensorDesc> seen_through(const TensorDesc& view, const TensorDesc& made,
                                       const TensorDesc& source);

}  // namespace nimble
