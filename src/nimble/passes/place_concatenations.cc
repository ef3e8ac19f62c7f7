#include "nimble/passes/place_concatenations.h"

#include <algorithm>
#include <utility>

#include "nimble/graph/relink.h"
#include "nimble/passes/images.h"
#include "nimble/passes/rewrite.h"

namespace nimble {
namespace {

// From the last concatenation to the first: so what is a piece of another has its place when its
// own pieces are placed, and the longest of those that share pieces comes first.
class ConcatenationPlacer {
 public:
  explicit ConcatenationPlacer(Graph& graph)
      : graph_(graph), uses_(graph), slots_(graph.ops.size()), exclusive_(graph.ops.size()) {}

  bool run() {
    std::vector<size_t> concatenations;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      if (!attributes_of<Concatenation>(op)) continue;
      concatenations.push_back(i);
      exclusive_[i] = uses_.sole_writer(op.operands.back().memory) == OpId(i);
    }
    if (concatenations.empty()) return false;
    for (size_t i = 0; i < graph_.ops.size(); ++i) slots_[i].push_back(std::move(graph_.ops[i]));
    graph_.ops.clear();
    for (size_t i = concatenations.size(); i-- > 0;) remove(concatenations[i]);
    for (std::vector<Op>& slot : slots_)
      for (Op& op : slot) graph_.ops.push_back(std::move(op));
    return true;
  }

 private:
  // Element ranges of one concatenation: where its pieces belong.
  struct Slice {
    size_t operand = 0;  // the piece
    TensorDesc desc;
  };

  void remove(size_t slot) {
    // It keeps its slot until the end of this: as a reader of its pieces it follows those that
    // move.
    const Op& op = slots_[slot].front();
    const Operand whole = op.operands.back();
    const std::vector<Slice> slices = cut(op);
    if (exclusive_[slot] && become_view(op, whole, slices)) {
      slots_[slot].clear();
      return;
    }
    std::vector<Slice> copied;
    for (const Slice& slice : slices) {
      const Operand& piece = op.operands[slice.operand];
      const TensorDesc from = graph_.desc_of(piece);
      const bool moves =
          exclusive_[slot] && is_free(piece) && move(piece.memory, from, whole.memory, slice.desc);
      if (!moves) copied.push_back(slice);
    }
    std::vector<Op> copies;
    for (const Slice& slice : copied) {
      const Operand& piece = op.operands[slice.operand];  // where it is now
      Op copy;
      copy.name = "piece of " + op.name;
      copy.module = op.module;
      copy.source = op.source;
      copy.attributes = Copy{};
      copy.operands = {reading(piece.memory, piece.view),
                       writing(whole.memory, add_view(graph_, slice.desc))};
      copies.push_back(std::move(copy));
    }
    if (exclusive_[slot]) filled_.push_back(whole.memory);
    slots_[slot] = std::move(copies);
  }

  std::vector<Slice> cut(const Op& op) const {
    const int64_t dim = std::get<Concatenation>(*op.attributes).dim;
    TensorDesc desc = graph_.desc_of(op.operands.back());
    const size_t d = dim < 0 ? desc.sizes.size() + dim : dim;
    std::vector<Slice> slices;
    for (size_t i = 0; i + 1 < op.operands.size(); ++i) {
      const TensorDesc& piece = graph_.desc_of(op.operands[i]);
      if (piece.numel() == 0) continue;
      desc.sizes[d] = piece.sizes[d];
      slices.push_back({i, desc});
      desc.offset += desc.sizes[d] * desc.strides[d];
    }
    return slices;
  }

  // If the pieces lie side by side in one memory, the whole is a view of that. It must be one that
  // we have filled, each byte once; others might change between its readers.
  bool become_view(const Op& op, const Operand& whole, const std::vector<Slice>& slices) {
    if (slices.empty() || graph_.memories[whole.memory.index].is_output || !fills_memory(whole))
      return false;
    const Operand& first = op.operands[slices.front().operand];
    if (std::find(filled_.begin(), filled_.end(), first.memory) == filled_.end()) return false;
    const TensorDesc from = graph_.desc_of(whole);
    TensorDesc there = from;
    there.strides = graph_.desc_of(first).strides;
    there.offset = graph_.desc_of(first).offset;
    for (const Slice& slice : slices) {
      const Operand& piece = op.operands[slice.operand];
      const auto moved = moved_view(slice.desc, from, there);
      if (piece.memory != first.memory || !moved || !same_elements(*moved, graph_.desc_of(piece)))
        return false;
    }
    return move(whole.memory, from, first.memory, there);
  }

  bool fills_memory(const Operand& operand) const {
    const TensorDesc& desc = graph_.desc_of(operand);
    const auto bytes = static_cast<int64_t>(graph_.memories[operand.memory.index].bytes);
    return desc.offset == 0 && desc.is_dense() && desc.end_byte() == bytes;
  }

  // Whether a piece is all of a memory that one op fills and nobody else writes.
  bool is_free(const Operand& piece) const {
    return !graph_.memories[piece.memory.index].is_output &&
           uses_.sole_writer(piece.memory).valid() && fills_memory(piece);
  }

  // Lets all users of a memory use another instead, in which it lies as `to` says; or none, if one
  // of them cannot.
  bool move(MemoryId memory, const TensorDesc& from, MemoryId target, const TensorDesc& to) {
    std::vector<std::pair<Operand*, TensorDesc>> changes;
    for (std::vector<Op>& slot : slots_)
      for (Op& op : slot)
        if (!add_changes(op, memory, from, to, changes)) return false;
    for (auto& [operand, desc] : changes) {
      operand->memory = target;
      operand->view = add_view(graph_, std::move(desc));
    }
    return true;
  }

  bool add_changes(Op& op, MemoryId memory, const TensorDesc& from, const TensorDesc& to,
                   std::vector<std::pair<Operand*, TensorDesc>>& changes) const {
    if (std::none_of(op.operands.begin(), op.operands.end(),
                     [&](const Operand& operand) { return operand.memory == memory; }))
      return true;
    if (!op.attributes) return false;
    const std::vector<size_t> images = image_operands(graph_, op);
    std::vector<TensorDesc> views;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      views.push_back(graph_.desc_of(op.operands[i]));
      if (op.operands[i].memory != memory) continue;
      auto moved = moved_view(views.back(), from, to);
      if (!moved) return false;
      if (std::find(images.begin(), images.end(), i) != images.end()) {
        if (const auto image = as_image(*moved)) moved = image;
        if (!has_channels_last(*moved)) return false;
      }
      views.back() = *moved;
      changes.emplace_back(&op.operands[i], *moved);
    }
    return kernels_take(graph_, op, views);
  }

  Graph& graph_;
  const Uses uses_;                     // of the graph as it came
  std::vector<std::vector<Op>> slots_;  // what stands for each op of it
  std::vector<bool> exclusive_;         // by op: a concatenation whose result it alone writes
  std::vector<MemoryId> filled_;        // results of those
};

}  // namespace

void place_concatenations(Graph& graph) {
  if (ConcatenationPlacer(graph).run()) relink(graph);
}

}  // namespace nimble
