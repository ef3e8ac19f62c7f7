#include <algorithm>

#include "nimble/kernels/chain_blocks.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/norm_gradient.h"

namespace nimble {
namespace {

class ChainKernel final : public Kernel {
 public:
  ChainKernel(const Chain& chain, LoopNest nest) : blocks_(chain, std::move(nest)) {}

  std::string name() const override { return blocks_.has_strips() ? "chain.strips" : "chain.runs"; }
  Work work() const override {
    if (blocks_.nest().rows() == 0) return {0, 0, 0, 0};
    return {blocks_.nest().rows(), 1, 1, 0};
  }
  size_t scratch_bytes(const Part&) const override { return blocks_.scratch_bytes(); }

  void run(const KernelArguments& arguments) const override {
    blocks_.run(arguments.operands, arguments.scratch, arguments.part.row_begin,
                arguments.part.row_end, [](const ChainBlocks::Block&) {});
  }

 private:
  ChainBlocks blocks_;
};

bool same_sizes(std::span<const TensorDesc> operands) {
  return std::all_of(operands.begin(), operands.end(), [&](const TensorDesc& desc) {
    return desc.sizes == operands[0].sizes && desc.dtype.name == "float32";
  });
}

}  // namespace

std::vector<KernelPtr> chain_candidates(const Chain& chain, std::span<const TensorDesc> operands) {
  if (chain.outputs.empty() || !same_sizes(operands)) return {};
  auto nest = LoopNest::make(operands, static_cast<size_t>(chain.inputs));
  if (!nest) return {};
  std::vector<KernelPtr> list = {std::make_shared<ChainKernel>(chain, *std::move(nest))};
  if (KernelPtr special = make_norm_gradient(chain, operands)) list.push_back(std::move(special));
  return list;
}

}  // namespace nimble
