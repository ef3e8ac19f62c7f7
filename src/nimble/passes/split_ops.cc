#include "nimble/passes/split_ops.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "nimble/base/error.h"
#include "nimble/graph/relink.h"
#include "nimble/passes/part_bytes.h"
#include "nimble/passes/rewrite.h"

namespace nimble {
namespace {

// Cuts [0, size) into about equal pieces at multiples of the grain. The same fractions for every
// op: so the parts of one op mostly need one or two of the parts of the one before.
std::vector<int64_t> cut(int64_t size, int64_t grain, size_t pieces) {
  const int64_t grains = (size + grain - 1) / grain;
  const auto count = std::min(static_cast<int64_t>(pieces), grains);
  std::vector<int64_t> points = {0};
  for (int64_t i = 1; i < count; ++i)
    points.push_back((2 * i * grains + count) / (2 * count) * grain);
  points.push_back(size);
  return points;
}

int64_t grains_of(int64_t size, int64_t grain) {
  return grain == 0 ? 1 : (size + grain - 1) / grain;
}

class Splitter {
 public:
  Splitter(Graph& graph, const SplitOptions& options) : graph_(graph), options_(options) {}

  std::vector<double> run() {
    std::vector<Op> ops = std::move(graph_.ops);
    graph_.ops.clear();
    for (size_t i = 0; i < ops.size(); ++i) {
      ops[i].group = static_cast<uint32_t>(i);
      split(std::move(ops[i]));
    }
    return std::move(costs_);
  }

 private:
  void split(Op op) {
    if (!op.attributes || !op.kernel.valid()) {
      add(std::move(op), 0);
      return;
    }
    const SplitInfo& info = options_.kernels.at(op.kernel.index);
    descs_.clear();
    for (const Operand& operand : op.operands) descs_.push_back(graph_.desc_of(operand));
    const std::vector<Op> parts = best_parts(op, info);
    if (parts.size() < 2) {
      add_scratch(op, info, info.work.whole());
      add(std::move(op), info.cost_ns);
      return;
    }
    const double whole =
        static_cast<double>(info.work.rows) * static_cast<double>(info.work.columns);
    for (Op part : parts) {
      const Part range = *part.part;
      add_scratch(part, info, range);
      const double share = static_cast<double>(range.row_end - range.row_begin) *
                           static_cast<double>(range.column_end - range.column_begin) / whole;
      add(std::move(part), info.cost_ns * share);
    }
  }

  void add(Op op, double cost_ns) {
    graph_.ops.push_back(std::move(op));
    costs_.push_back(cost_ns);
  }

  void add_scratch(Op& op, const SplitInfo& info, const Part& part) {
    const size_t bytes = info.scratch_bytes ? info.scratch_bytes(part) : 0;
    if (bytes == 0) return;
    const auto size = static_cast<int64_t>(bytes);
    const TensorDesc desc = row_major({.code = 0, .bytes = 1, .name = "uint8"}, {size});
    op.operands.push_back(writing(add_memory(graph_, size), add_view(graph_, desc)));
  }

  size_t part_count(const Op& op, const SplitInfo& info) const {
    if (options_.workers < 2) return 1;
    auto affordable = static_cast<size_t>(std::max(info.cost_ns / options_.smallest_part_ns, 1.0));
    if (affordable < options_.workers)
      affordable =
          std::clamp<size_t>(moved_bytes(op) / kSmallestPartBytes, affordable, options_.workers);
    if (affordable < options_.workers) return affordable;
    return options_.workers *
           std::min(affordable / options_.workers, options_.most_parts_per_worker);
  }

  // None if it is to stay in one piece.
  std::vector<Op> best_parts(const Op& op, const SplitInfo& info) const {
    const size_t count = part_count(op, info);
    const Work& work = info.work;
    if (count < 2 || work.rows <= 0 || work.columns <= 0) return {};
    // Cuts that follow from rows and columns that mean something else to us are not to be trusted.
    const Part whole = whole_part(*op.attributes, descs_);
    const bool rows_known = work.row_grain != 0 && work.rows == whole.row_end;
    const bool columns_known = work.column_grain != 0 && work.columns == whole.column_end;
    const int64_t row_grains = rows_known ? grains_of(work.rows, work.row_grain) : 1;
    const int64_t column_grains = columns_known ? grains_of(work.columns, work.column_grain) : 1;
    const auto wanted = static_cast<int64_t>(count);
    const bool by_columns =
        column_grains > 1 && (weights_dominate(op) ? column_grains >= std::min(row_grains, wanted)
                                                   : row_grains < std::min(column_grains, wanted));
    for (bool columns : {by_columns, !by_columns}) {
      if ((columns ? column_grains : row_grains) < 2) continue;
      auto parts = columns ? parts_by_columns(op, work, count)
                           : parts_by_rows(op, work, work.row_grain, count);
      if (are_independent(parts)) return parts;
      if (columns) continue;
      // Between images, heads or matrices.
      const int64_t rows_of_each = rows_of_one(*op.attributes, descs_);
      if (rows_of_each % work.row_grain != 0 || rows_of_each >= work.rows) continue;
      auto wider = parts_by_rows(op, work, rows_of_each, count);
      if (are_independent(wider)) return wider;
    }
    return {};
  }

  // Of what is not constant.
  size_t moved_bytes(const Op& op) const {
    int64_t bytes = 0;
    for (size_t i = 0; i < op.operands.size(); ++i)
      if (!is_constant(op.operands[i])) bytes += descs_[i].numel() * descs_[i].dtype.bytes;
    return static_cast<size_t>(bytes);
  }

  bool is_constant(const Operand& operand) const {
    const Role role = graph_.memories[operand.memory.index].role;
    return role == Role::kFolded || role == Role::kExternal || role == Role::kConstant;
  }

  // Whether an op reads more constants than anything else: then each core should read its share.
  bool weights_dominate(const Op& op) const {
    int64_t constants = 0;
    int64_t others = 0;
    const auto count = [&](size_t operand, bool constant) {
      const int64_t bytes = descs_[operand].numel() * descs_[operand].dtype.bytes;
      (constant ? constants : others) += bytes;
    };
    const auto* matmul = attributes_of<MatMul>(op);
    const bool has_weights = attributes_of<Convolution>(op) ||
                             attributes_of<SeparableConvolution>(op) ||
                             (matmul && matmul->constant_b);
    if (!has_weights) return false;
    const auto* convolution = attributes_of<Convolution>(op);
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (convolution && convolution->scale_input && i == convolution->scale_operand())
        continue;  // a few numbers with the sizes of an image
      count(i, is_constant(op.operands[i]));
    }
    return constants > others;
  }

  std::vector<Op> parts_by_rows(const Op& op, const Work& work, int64_t grain, size_t count) const {
    std::vector<Op> parts;
    const std::vector<int64_t> points = cut(work.rows, grain, count);
    for (size_t i = 0; i + 1 < points.size(); ++i)
      parts.push_back(part_of(op, work, {points[i], points[i + 1], 0, work.columns}));
    return parts;
  }

  std::vector<Op> parts_by_columns(const Op& op, const Work& work, size_t count) const {
    std::vector<Op> parts;
    const std::vector<int64_t> points = cut(work.columns, work.column_grain, count);
    for (size_t i = 0; i + 1 < points.size(); ++i)
      parts.push_back(part_of(op, work, {0, work.rows, points[i], points[i + 1]}));
    return parts;
  }

  Op part_of(const Op& op, const Work& work, const Part& part) const {
    Op result = op;
    result.part = part;
    // A kernel that is not divisible one way may call everything one row or column.
    const Part whole = whole_part(*op.attributes, descs_);
    Part counted = part;
    if (part.row_begin == 0 && part.row_end == work.rows) counted.row_end = whole.row_end;
    if (part.column_begin == 0 && part.column_end == work.columns)
      counted.column_end = whole.column_end;
    for (size_t i = 0; i < result.operands.size(); ++i)
      result.operands[i].part_bytes = part_bytes(*op.attributes, descs_, i, counted);
    return result;
  }

  // Whether no part writes what another touches: the op as a whole reads all before it writes, and
  // its parts come in any order.
  static bool are_independent(const std::vector<Op>& parts) {
    for (size_t i = 0; i < parts.size(); ++i)
      for (size_t j = i + 1; j < parts.size(); ++j)
        for (const Operand& a : parts[i].operands)
          for (const Operand& b : parts[j].operands)
            if (a.memory == b.memory && (a.writes || b.writes) &&
                a.part_bytes->may_overlap(*b.part_bytes))
              return false;
    return true;
  }

  Graph& graph_;
  const SplitOptions& options_;
  std::vector<TensorDesc> descs_;  // of the op at hand
  std::vector<double> costs_;
};

}  // namespace

std::vector<double> split_ops(Graph& graph, const SplitOptions& options) {
  std::vector<double> costs = Splitter(graph, options).run();
  relink(graph);
  return costs;
}

}  // namespace nimble
