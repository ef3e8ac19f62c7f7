#include <algorithm>

#include "nimble/kernels/families.h"
#include "nimble/kernels/loop_nest.h"
#include "nimble/kernels/reduce_runs.h"

namespace nimble {
namespace {

// The loops over the reduced dims; one of a single element at least.
bool make_reduced_loops(const TensorDesc& input, std::vector<int64_t> dims, ReducedLoops& loops) {
  std::stable_sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) {
    return input.strides[static_cast<size_t>(a)] > input.strides[static_cast<size_t>(b)];
  });
  for (int64_t dim : dims) {
    const int64_t size = input.sizes[static_cast<size_t>(dim)];
    const int64_t stride = input.strides[static_cast<size_t>(dim)];
    if (size == 1) continue;
    const size_t last = loops.count - 1;
    if (loops.count > 0 && loops.strides[last] == size * stride) {
      loops.sizes[last] *= size;
      loops.strides[last] = stride;
      continue;
    }
    if (loops.count == ReducedLoops::kMax) return false;
    loops.sizes[loops.count] = size;
    loops.strides[loops.count++] = stride;
  }
  if (loops.count == 0) {
    loops.sizes[0] = 1;
    loops.count = 1;
  }
  return true;
}

class ReduceKernel final : public Kernel {
 public:
  ReduceKernel(Reduce::Kind kind, const ReducedLoops& loops, LoopNest nest, bool runs_are_columns)
      : loops_(loops),
        nest_(std::move(nest)),
        runs_are_columns_(runs_are_columns),
        function_(reduce_function(kind, loops, nest_.run_stride(0))) {}

  std::string name() const override { return "reduce"; }
  Work work() const override {
    if (nest_.rows() == 0) return {0, 0, 0, 0};
    Work work{nest_.rows(), nest_.rows() > 1 ? 1 : 0, 1, 0};
    if (runs_are_columns_) {
      work.columns = nest_.run();
      work.column_grain = 16;
    }
    return work;
  }

  void run(const KernelArguments& arguments) const override {
    const Part& part = arguments.part;
    nest_.for_each_tile(part.row_begin, part.row_end, [&](const LoopNest::Tile& tile) {
      const int64_t begin = runs_are_columns_ ? part.column_begin : 0;
      const int64_t end = runs_are_columns_ ? part.column_end : tile.run;
      for (int64_t row = 0; row < tile.rows; ++row) {
        const auto element = [&](size_t operand) {
          return static_cast<float*>(arguments.operands[operand]) + tile.offsets[operand] +
                 row * nest_.row_stride(operand) + begin * nest_.run_stride(operand);
        };
        function_({.loops = &loops_,
                   .from = element(0),
                   .to = element(1),
                   .run = end - begin,
                   .from_stride = nest_.run_stride(0),
                   .to_stride = nest_.run_stride(1)});
      }
    });
  }

 private:
  ReducedLoops loops_;
  LoopNest nest_;
  bool runs_are_columns_;
  ReduceFunction function_;
};

}  // namespace

std::vector<KernelPtr> reduce_candidates(const Reduce& reduce,
                                         std::span<const TensorDesc> operands) {
  if (operands[0].dtype.name != "float32" || operands[1].dtype.name != "float32" ||
      operands[0].sizes.size() != operands[1].sizes.size())
    return {};
  TensorDesc kept = operands[0];  // the first element of each reduction
  std::vector<int64_t> dims = reduce.dims;
  for (int64_t& dim : dims) {
    if (dim < 0) dim += static_cast<int64_t>(kept.sizes.size());
    kept.sizes[static_cast<size_t>(dim)] = 1;
  }
  const TensorDesc& output = operands[1];
  if (kept.sizes != output.sizes) return {};
  ReducedLoops loops;
  if (!make_reduced_loops(operands[0], dims, loops)) return {};
  const bool extreme = reduce.kind == Reduce::Kind::kMax || reduce.kind == Reduce::Kind::kMin;
  if (extreme && loops.elements() == 0) return {};

  const TensorDesc both[] = {kept, output};
  auto nest = LoopNest::make(both, 1);
  if (!nest) return {};
  const size_t rank = output.sizes.size();
  const size_t column_dim = rank == 4 ? 1 : rank - 1;
  const bool runs_are_columns = rank > 0 && !nest->cuts_runs() &&
                                nest->run() == output.sizes[column_dim] &&
                                nest->run_stride(0) == kept.strides[column_dim] &&
                                nest->run_stride(1) == output.strides[column_dim];
  return {std::make_shared<ReduceKernel>(reduce.kind, loops, *std::move(nest), runs_are_columns)};
}

}  // namespace nimble
