#include "nimble/passes/fuse_padding.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "nimble/passes/remove_dead_ops.h"
#include "nimble/passes/round.h"
#include "nimble/passes/slices.h"

namespace nimble {
namespace {

// What a reader of a padded tensor sees: part of the source, and what lies around that.
struct PaddedView {
  TensorDesc source;
  std::vector<int64_t> near;
  std::vector<int64_t> far;

  bool only_crops() const {
    const auto none = [](const std::vector<int64_t>& padding) {
      return std::all_of(padding.begin(), padding.end(), [](int64_t p) { return p == 0; });
    };
    return none(near) && none(far);
  }
  bool pads_image_only() const {
    return near.size() == 4 && near[0] == 0 && near[1] == 0 && far[0] == 0 && far[1] == 0;
  }
};

std::optional<PaddedView> padded_view(const Graph& graph, const Op& op, const TensorDesc& view) {
  const auto& begin = attributes_of<Pad>(op)->begin;
  PaddedView result{graph.desc_of(op.operands[0]), {}, {}};
  const auto start = start_of_slice(view, graph.desc_of(op.operands[1]));
  if (!start) return std::nullopt;
  for (size_t d = 0; d < begin.size(); ++d) {
    const int64_t first = (*start)[d] - begin[d];  // in the source, of what is seen
    const int64_t last = first + view.sizes[d];
    const int64_t inside_begin = std::max<int64_t>(first, 0);
    const int64_t inside_end = std::min(last, result.source.sizes[d]);
    if (inside_begin >= inside_end) return std::nullopt;
    result.near.push_back(inside_begin - first);
    result.far.push_back(last - inside_end);
    result.source = slice(std::move(result.source), d, inside_begin, inside_end - inside_begin);
  }
  return result;
}

// Far padding that no window reaches is none.
void trim(PaddedView& view, const Pool& pool, const TensorDesc& output) {
  for (size_t d : {0, 1}) {
    const int64_t reach = (output.sizes[2 + d] - 1) * pool.stride[d] - pool.padding[d] +
                          pool.dilation[d] * (pool.kernel[d] - 1) + 1;
    const int64_t padded = view.near[2 + d] + view.source.sizes[2 + d] + view.far[2 + d];
    if (reach <= padded) view.far[2 + d] = std::max<int64_t>(view.far[2 + d] - (padded - reach), 0);
  }
}

std::optional<Pool> with_padding(Pool pool, float value, const PaddedView& view) {
  constexpr std::array<int64_t, 2> kNone = {0, 0};
  if (pool.kind == Pool::Kind::kMax) {
    if (value != -std::numeric_limits<float>::infinity()) return std::nullopt;
  } else {
    if (value != 0) return std::nullopt;
    // Zeros of the padded tensor count in the divisor.
    if (pool.divisor == 0 && !pool.count_include_pad) {
      if (pool.padding != kNone || pool.far_padding != kNone) return std::nullopt;
      pool.count_include_pad = true;
    }
  }
  for (size_t d : {0, 1}) {
    pool.padding[d] += view.near[2 + d];
    pool.far_padding[d] += view.far[2 + d];
    // Kernels need not expect windows that lie outside.
    const int64_t extent = pool.dilation[d] * (pool.kernel[d] - 1) + 1;
    if (pool.padding[d] >= extent || pool.far_padding[d] >= extent) return std::nullopt;
  }
  return pool;
}

// Kernels of other ops may want their rows without gaps.
bool reads_any_slice(const Op& op) {
  return attributes_of<Convolution>(op) != nullptr || attributes_of<Pool>(op) != nullptr ||
         attributes_of<Chain>(op) != nullptr || attributes_of<Copy>(op) != nullptr ||
         attributes_of<Pad>(op) != nullptr || attributes_of<Concatenation>(op) != nullptr;
}

// The reader's attributes if its padding does what was done for it; none if that is not the same.
std::optional<OpAttributes> padding_itself(const Graph& graph, const Op& reader, size_t operand,
                                           float value, PaddedView view) {
  if (view.only_crops() && reads_any_slice(reader)) return reader.attributes;
  if (operand != 0 || !view.pads_image_only()) return std::nullopt;
  if (const auto* convolution = attributes_of<Convolution>(reader)) {
    if (value != 0 || convolution->scale_input) return std::nullopt;
    Convolution padded = *convolution;
    for (size_t d : {0, 1}) padded.padding[d] += view.near[2 + d];
    return padded;
  }
  if (const auto* pool = attributes_of<Pool>(reader)) {
    trim(view, *pool, graph.desc_of(reader.operands.back()));
    if (view.only_crops()) return reader.attributes;
    if (auto padded = with_padding(*pool, value, view)) return *padded;
  }
  return std::nullopt;
}

}  // namespace

void fuse_padding(Graph& graph) {
  sweep_until_unchanged(graph, [](Round& round, OpId id) {
    Graph& graph = round.graph;
    if (!round.op(id).attributes) return;
    for (size_t i = 0; i < round.op(id).operands.size(); ++i) {
      const Operand& operand = round.op(id).operands[i];
      if (!operand.reads) continue;
      const OpId maker = round.maker(operand);
      if (!maker.valid() || attributes_of<Pad>(round.op(maker)) == nullptr) continue;
      const Operand& source = round.op(maker).operands[0];
      if (!round.uses.is_stable(source.memory)) continue;
      const auto view = padded_view(graph, round.op(maker), graph.desc_of(operand));
      if (!view) continue;
      const float value = attributes_of<Pad>(round.op(maker))->value;
      auto attributes = padding_itself(graph, round.op(id), i, value, *view);
      if (!attributes) continue;
      Op reader = round.op(id);
      reader.attributes = std::move(attributes);
      reader.operands[i] = reading(source.memory, add_view(graph, view->source));
      round.replace(id, std::move(reader));
      return;
    }
  });
  remove_dead_ops(graph);
}

}  // namespace nimble
