#include "nimble/passes/rewrite.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace nimble {
namespace {

void note(std::vector<OpId>& ops, OpId op) {
  if (ops.empty() || ops.back() != op) ops.push_back(op);
}

// Sizes and strides with dims of size 1 dropped and dims that continue each other merged.
std::vector<std::pair<int64_t, int64_t>> merged_dims(const TensorDesc& desc) {
  std::vector<std::pair<int64_t, int64_t>> merged;
  for (size_t d = 0; d < desc.sizes.size(); ++d) {
    if (desc.sizes[d] == 1) continue;
    if (!merged.empty() && merged.back().second == desc.sizes[d] * desc.strides[d]) {
      merged.back().first *= desc.sizes[d];
      merged.back().second = desc.strides[d];
    } else {
      merged.emplace_back(desc.sizes[d], desc.strides[d]);
    }
  }
  return merged;
}

// A dim of a tensor in two layouts.
struct PairedDim {
  int64_t size = 0;
  int64_t from = 0;  // strides
  int64_t to = 0;
};

// Dims of size 1 dropped, the others by falling stride of `from`; those that continue each other in
// both layouts are one.
std::vector<PairedDim> paired_dims(const TensorDesc& from, const TensorDesc& to) {
  std::vector<PairedDim> dims;
  for (size_t d = 0; d < from.sizes.size(); ++d)
    if (from.sizes[d] != 1) dims.push_back({from.sizes[d], from.strides[d], to.strides[d]});
  std::stable_sort(dims.begin(), dims.end(),
                   [](const PairedDim& a, const PairedDim& b) { return a.from > b.from; });
  std::vector<PairedDim> merged;
  for (const PairedDim& dim : dims) {
    if (!merged.empty() && merged.back().from == dim.size * dim.from &&
        merged.back().to == dim.size * dim.to)
      merged.back() = {merged.back().size * dim.size, dim.from, dim.to};
    else
      merged.push_back(dim);
  }
  return merged;
}

}  // namespace

Uses::Uses(const Graph& graph)
    : graph_(graph),
      sole_writers_(graph.memories.size()),
      writers_(graph.memories.size()),
      readers_(graph.memories.size()) {
  std::vector<bool> whole(graph.memories.size());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (const Operand& operand : graph.ops[i].operands) {
      const size_t m = operand.memory.index;
      if (operand.reads) note(readers_[m], OpId(i));
      if (!operand.writes) continue;
      const auto bytes = static_cast<int64_t>(graph.memories[m].bytes);
      whole[m] = !operand.reads && graph.bytes_touched(operand).covers({0, bytes, 0, 0});
      note(writers_[m], OpId(i));
    }
  }
  for (size_t m = 0; m < whole.size(); ++m) {
    if (writers_[m].size() != 1 || !whole[m]) continue;
    const Role role = graph.memories[m].role;
    if (role != Role::kIntermediate) continue;
    if (!readers_[m].empty() && readers_[m].front() <= writers_[m].front()) continue;
    sole_writers_[m] = writers_[m].front();
  }
}

OpId Uses::sole_reader(MemoryId memory) const {
  if (graph_.memories[memory.index].is_output || readers_[memory.index].size() != 1) return OpId();
  return readers_[memory.index].front();
}

bool Uses::is_stable(MemoryId memory) const {
  return sole_writer(memory).valid() || writers_[memory.index].empty();
}

bool Uses::is_constant(MemoryId memory) const {
  const Role role = graph_.memories[memory.index].role;
  if (role == Role::kFolded) return true;
  return (role == Role::kExternal || role == Role::kConstant) && writers_[memory.index].empty() &&
         !graph_.memories[memory.index].is_updated;
}

const Chain* chain_of(const Op& op) {
  const auto* sums = attributes_of<ChainSums>(op);
  return sums ? &sums->chain : attributes_of<Chain>(op);
}

ViewId add_view(Graph& graph, TensorDesc desc) {
  graph.views.push_back({BufferId(), std::move(desc)});
  return ViewId(graph.views.size() - 1);
}

MemoryId add_memory(Graph& graph, int64_t bytes, Role role) {
  graph.memories.push_back({static_cast<size_t>(bytes), role, BufferId(), false});
  return MemoryId(graph.memories.size() - 1);
}

Operand reading(MemoryId memory, ViewId view) {
  Operand operand;
  operand.memory = memory;
  operand.view = view;
  operand.reads = true;
  return operand;
}

Operand writing(MemoryId memory, ViewId view) {
  Operand operand;
  operand.memory = memory;
  operand.view = view;
  operand.writes = true;
  return operand;
}

void erase_ops(Graph& graph, const std::vector<bool>& erased) {
  size_t kept = 0;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (erased[i]) continue;
    if (kept != i) graph.ops[kept] = std::move(graph.ops[i]);
    ++kept;
  }
  graph.ops.resize(kept);
}

std::string joined_name(const Op& first, const Op& second) {
  return first.name + " + " + second.name;
}

TensorDesc row_major(const DType& dtype, const std::vector<int64_t>& sizes) {
  TensorDesc desc{.dtype = dtype, .sizes = sizes, .strides = std::vector<int64_t>(sizes.size())};
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0; stride *= sizes[d]) desc.strides[d] = stride;
  return desc;
}

std::optional<TensorDesc> reshaped(const TensorDesc& desc, const std::vector<int64_t>& sizes) {
  TensorDesc result = desc;
  result.sizes = sizes;
  result.strides.assign(sizes.size(), 0);
  if (result.numel() != desc.numel()) return std::nullopt;
  if (desc.numel() == 0) {
    result.strides = row_major(desc.dtype, sizes).strides;
    return result;
  }
  // Each stretch of memory that is contiguous is cut into the new dims, from the end.
  const auto stretches = merged_dims(desc);
  size_t d = sizes.size();
  for (size_t s = stretches.size(); s-- > 0;) {
    int64_t left = stretches[s].first;
    int64_t stride = stretches[s].second;
    while (left > 1) {
      if (d == 0) return std::nullopt;
      --d;
      if (left % sizes[d] != 0) return std::nullopt;
      result.strides[d] = stride;
      stride *= sizes[d];
      left /= sizes[d];
    }
  }
  while (d > 0) {
    --d;
    if (sizes[d] != 1) return std::nullopt;
    result.strides[d] = 1;
  }
  return result;
}

bool same_elements(const TensorDesc& a, const TensorDesc& b) {
  if (!(a.dtype == b.dtype) || a.numel() != b.numel()) return false;
  if (a.numel() == 0) return true;
  return a.offset == b.offset && a.conjugate == b.conjugate && a.negative == b.negative &&
         merged_dims(a) == merged_dims(b);
}

std::optional<TensorDesc> moved_view(const TensorDesc& view, const TensorDesc& from,
                                     const TensorDesc& to) {
  TensorDesc moved = view;
  moved.offset = to.offset;
  if (view.sizes == from.sizes && view.strides == from.strides && view.offset == from.offset &&
      view.dtype == from.dtype) {
    moved.strides = to.strides;
    return moved;
  }
  if (!(view.dtype == from.dtype)) return std::nullopt;
  if (view.numel() == 0) return moved;
  const std::vector<PairedDim> dims = paired_dims(from, to);
  // The coordinates of the first element.
  std::vector<int64_t> room(dims.size());  // indices behind it
  int64_t rest = view.offset - from.offset;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d].from == 0 || rest < 0) return std::nullopt;
    const int64_t index = rest / dims[d].from;
    if (index >= dims[d].size) return std::nullopt;
    rest -= index * dims[d].from;
    room[d] = dims[d].size - 1 - index;
    moved.offset += index * dims[d].to;
  }
  if (rest != 0) return std::nullopt;
  for (size_t v = 0; v < view.sizes.size(); ++v) {
    if (view.sizes[v] == 1) {  // any stride will do; the usual one if there is such
      if (view.sizes.size() == to.sizes.size()) moved.strides[v] = to.strides[v];
      continue;
    }
    if (view.strides[v] == 0) continue;
    // It must walk along one dim, as far as that reaches; the widest such dim is meant.
    size_t d = 0;
    while (d < dims.size() && view.strides[v] % dims[d].from != 0) ++d;
    if (d == dims.size()) return std::nullopt;
    const int64_t steps = (view.sizes[v] - 1) * (view.strides[v] / dims[d].from);
    if (steps > room[d]) return std::nullopt;
    room[d] -= steps;
    moved.strides[v] = view.strides[v] / dims[d].from * dims[d].to;
  }
  return moved;
}

}  // namespace nimble
