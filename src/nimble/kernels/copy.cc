#include "nimble/kernels/copy_tiles.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/loop_nest.h"

namespace nimble {
namespace {

class CopyKernel final : public Kernel {
 public:
  CopyKernel(LoopNest nest, int element_bytes)
      : nest_(std::move(nest)), bytes_(element_bytes), function_(copy_function(tile(), bytes_)) {}

  std::string name() const override { return "copy"; }
  Work work() const override {
    if (nest_.rows() == 0) return {0, 0, 0, 0};
    return {nest_.rows(), 1, 1, 0};
  }

  void run(const KernelArguments& arguments) const override {
    CopyTile copy = tile();
    nest_.for_each_tile(
        arguments.part.row_begin, arguments.part.row_end, [&](const LoopNest::Tile& each) {
          copy.rows = each.rows;
          copy.run = each.run;
          copy.from =
              static_cast<const std::byte*>(arguments.operands[0]) + each.offsets[0] * bytes_;
          copy.to = static_cast<std::byte*>(arguments.operands[1]) + each.offsets[1] * bytes_;
          function_(copy);
        });
  }

  bool valid() const { return function_ != nullptr; }

 private:
  CopyTile tile() const {
    return {.from = nullptr,
            .to = nullptr,
            .rows = nest_.tile_rows(),
            .run = nest_.run(),
            .from_row_stride = nest_.row_stride(0),
            .from_run_stride = nest_.run_stride(0),
            .to_row_stride = nest_.row_stride(1),
            .to_run_stride = nest_.run_stride(1)};
  }

  LoopNest nest_;
  int bytes_;
  CopyFunction function_;
};

}  // namespace

std::vector<KernelPtr> copy_candidates(const Copy&, std::span<const TensorDesc> operands) {
  const TensorDesc& from = operands[0];
  const TensorDesc& to = operands[1];
  if (from.sizes != to.sizes || !(from.dtype == to.dtype) || from.conjugate != to.conjugate ||
      from.negative != to.negative)
    return {};
  auto nest = LoopNest::make(operands, 1);
  if (!nest) return {};
  auto kernel = std::make_shared<CopyKernel>(*std::move(nest), to.dtype.bytes);
  if (!kernel->valid()) return {};
  return {std::move(kernel)};
}

}  // namespace nimble
