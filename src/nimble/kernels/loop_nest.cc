#include "nimble/kernels/loop_nest.h"

#include <algorithm>
#include <numeric>

#include "nimble/kernels/work.h"

namespace nimble {

std::optional<LoopNest> LoopNest::make(std::span<const TensorDesc> operands, size_t rows_of) {
  const std::vector<int64_t>& sizes = operands[rows_of].sizes;
  const std::vector<size_t> outer = row_dims(operands[rows_of]);
  std::vector<size_t> inner;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (std::find(outer.begin(), outer.end(), d) == outer.end()) inner.push_back(d);
  std::stable_sort(inner.begin(), inner.end(), [&](size_t a, size_t b) {
    return operands[rows_of].strides[a] > operands[rows_of].strides[b];
  });
  return make(operands, outer, inner, false);
}

std::optional<LoopNest> LoopNest::make_by_channels(std::span<const TensorDesc> operands) {
  const size_t rank = operands[0].sizes.size();
  if (rank == 0) return {};
  if (rank == 4) return make(operands, {0, 2}, {3, 1}, true);
  std::vector<size_t> outer(rank - 1);
  std::iota(outer.begin(), outer.end(), size_t{0});
  return make(operands, outer, {rank - 1}, true);
}

std::optional<LoopNest> LoopNest::make(std::span<const TensorDesc> operands,
                                       const std::vector<size_t>& outer,
                                       const std::vector<size_t>& inner, bool last_alone) {
  if (operands.size() > kMaxOperands) return {};
  LoopNest nest;
  nest.operands_ = operands.size();
  const std::vector<int64_t>& sizes = operands[0].sizes;
  std::vector<size_t> dims = outer;
  dims.insert(dims.end(), inner.begin(), inner.end());

  bool any_rows = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t size = sizes[dims[i]];
    const bool alone = last_alone && i + 1 == dims.size();
    if (size == 0) nest.rows_ = 0;
    if (size == 1 && !alone) continue;
    const bool counts_rows = i < outer.size();
    Loop loop{.size = size, .row_size = counts_rows ? size : 1};
    bool merges = !nest.loops_.empty() && !alone;
    for (size_t k = 0; k < operands.size(); ++k) {
      loop.strides[k] = size == 1 ? 1 : operands[k].strides[dims[i]];
      merges = merges && nest.loops_.back().strides[k] == size * loop.strides[k];
    }
    if (merges) {
      loop.size *= nest.loops_.back().size;
      loop.row_size *= nest.loops_.back().row_size;
      nest.loops_.pop_back();
    }
    nest.loops_.push_back(loop);
    if (counts_rows) {
      any_rows = true;
      nest.rows_ *= size;
    }
    if (loop.row_size > 1) nest.last_row_loop_ = nest.loops_.size() - 1;
  }
  if (!any_rows) {
    Loop single;
    single.strides.fill(1);
    nest.loops_.insert(nest.loops_.begin(), single);
    nest.last_row_loop_ = 0;
  }
  if (nest.loops_.size() > kMaxLoops) return {};
  return nest;
}

bool LoopNest::same_strides(size_t a, size_t b) const {
  return std::all_of(loops_.begin(), loops_.end(),
                     [&](const Loop& loop) { return loop.strides[a] == loop.strides[b]; });
}

}  // namespace nimble
