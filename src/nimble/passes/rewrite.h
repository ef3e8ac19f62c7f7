#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nimble/graph/graph.h"

// What passes are written with.
namespace nimble {

// Who writes and reads each memory of a graph, at the time this was made.
class Uses {
 public:
  explicit Uses(const Graph& graph);

  // The op that alone writes a memory, all of it and before anybody reads it; none otherwise.
  OpId sole_writer(MemoryId memory) const { return sole_writers_[memory.index]; }
  const std::vector<OpId>& writers(MemoryId memory) const { return writers_[memory.index]; }
  const std::vector<OpId>& readers(MemoryId memory) const { return readers_[memory.index]; }
  // The only op that reads a memory which is not an output of the program; none otherwise.
  OpId sole_reader(MemoryId memory) const;
  // Whether all readers see the same contents, wherever they stand: it has a sole writer, or nobody
  // writes it. Reads of other memories must not be moved.
  bool is_stable(MemoryId memory) const;
  // Whether it is there before the first op and never changes during a replay.
  bool is_constant(MemoryId memory) const;

 private:
  const Graph& graph_;
  std::vector<OpId> sole_writers_;
  std::vector<std::vector<OpId>> writers_;
  std::vector<std::vector<OpId>> readers_;
};

// Whether an op is one of ours, of that kind.
template <class Attributes>
const Attributes* attributes_of(const Op& op) {
  return op.attributes ? std::get_if<Attributes>(&*op.attributes) : nullptr;
}

// The chain of a Chain, or of ChainSums; none of another op.
const Chain* chain_of(const Op& op);

ViewId add_view(Graph& graph, TensorDesc desc);
// An intermediate, unless said otherwise.
MemoryId add_memory(Graph& graph, int64_t bytes, Role role = Role::kIntermediate);
Operand reading(MemoryId memory, ViewId view);
Operand writing(MemoryId memory, ViewId view);

// Removes ops by index, keeping the order of the others. Op ids change.
void erase_ops(Graph& graph, const std::vector<bool>& erased);

// The op that stands for both: the name of the first and the second, joined; module and source of
// the first.
std::string joined_name(const Op& first, const Op& second);

// Row-major, at the beginning of its memory.
TensorDesc row_major(const DType& dtype, const std::vector<int64_t>& sizes);
// The same elements in the same row-major order seen with other sizes, if strides allow that.
std::optional<TensorDesc> reshaped(const TensorDesc& desc, const std::vector<int64_t>& sizes);
// Whether two views of a memory have the same elements in the same row-major order.
bool same_elements(const TensorDesc& a, const TensorDesc& b);
// A view of a tensor that lies as `from` says, when it is laid out as `to` says instead (same
// sizes): the same logical elements. None if the view mixes dimensions (a flattened image), unless
// they continue each other in both layouts (all pixels of an image as one dim).
std::optional<TensorDesc> moved_view(const TensorDesc& view, const TensorDesc& from,
                                     const TensorDesc& to);

}  // namespace nimble
