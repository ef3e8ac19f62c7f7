#include "nimble/passes/mean_by_rows.h"

#include <algorithm>
#include <utility>

#include "nimble/passes/round.h"
#include "nimble/passes/tuning.h"

namespace nimble {
namespace {

bool is_mean_of_pixels(const Reduce& reduce) {
  if (reduce.kind != Reduce::Kind::kMean) return false;
  std::vector<int64_t> dims = reduce.dims;
  for (int64_t& dim : dims) dim += dim < 0 ? 4 : 0;
  std::sort(dims.begin(), dims.end());
  return dims == std::vector<int64_t>{2, 3};
}

// mean of {2, 3} -> average pool to one column, mean of {2}
void visit(Round& round, OpId id) {
  Graph& graph = round.graph;
  const auto* reduce = attributes_of<Reduce>(round.op(id));
  if (reduce == nullptr) return;
  const TensorDesc image = graph.desc_of(round.op(id).operands[0]);
  if (image.sizes.size() != 4 || !is_mean_of_pixels(*reduce)) return;
  if (image.sizes[2] < 2 || image.sizes[3] < 2 ||
      image.numel() * image.dtype.bytes < 2 * kSmallestPartBytes)
    return;

  const TensorDesc rows =
      row_major(image.dtype, {image.sizes[0], image.sizes[1], image.sizes[2], 1});
  const MemoryId memory = add_memory(graph, rows.end_byte());
  const ViewId view = add_view(graph, rows);
  Op of_rows = round.op(id);
  of_rows.attributes = AdaptivePool{Pool::Kind::kAverage};
  of_rows.operands.back() = writing(memory, view);
  of_rows.group = round.new_group();
  Op of_image = round.op(id);
  of_image.attributes = Reduce{reduce->kind, {2}};
  of_image.operands[0] = reading(memory, view);
  round.insert_before(id, std::move(of_rows));
  round.replace(id, std::move(of_image));
}

}  // namespace

void mean_by_rows(Graph& graph) {
  sweep_until_unchanged(graph, visit);
}

}  // namespace nimble
