#include <algorithm>

#include "nimble/kernels/chain_blocks.h"
#include "nimble/kernels/column_sums.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/norm_gradient.h"

namespace nimble {
namespace {

// The chain's blocks, each summed up while it is in the first-level cache.
class ChainSumsKernel final : public Kernel {
 public:
  ChainSumsKernel(const ChainSums& attributes, LoopNest nest, const TensorDesc& sums)
      : blocks_(attributes.chain, std::move(nest), attributes.sums),
        first_sum_(static_cast<size_t>(attributes.chain.inputs) + attributes.chain.outputs.size()),
        sums_(attributes.sums.size()),
        block_count_(sums.sizes[0]),
        channels_(sums.sizes[1]),
        add_(column_sums()) {}

  std::string name() const override { return "chain_sums"; }
  Work work() const override { return {block_count_, block_count_ > 1 ? 1 : 0, 1, 0}; }
  size_t scratch_bytes(const Part&) const override {
    return totals_at() + sums_ * static_cast<size_t>(channels_) * sizeof(double);
  }

  void run(const KernelArguments& arguments) const override {
    auto* totals = reinterpret_cast<double*>(arguments.scratch + totals_at());
    for (int64_t b = arguments.part.row_begin; b < arguments.part.row_end; ++b) {
      std::fill_n(totals, static_cast<int64_t>(sums_) * channels_, 0.0);
      const BlockRows rows = rows_of_block(blocks_.nest().rows(), b, block_count_);
      blocks_.run(arguments.operands, arguments.scratch, rows.begin, rows.end,
                  [&](const ChainBlocks::Block& block) {
                    for (size_t s = 0; s < sums_; ++s)
                      add_({blocks_.kept(block, s), block.rows, block.run, block.run},
                           totals + static_cast<int64_t>(s) * channels_ + block.column);
                  });
      for (size_t s = 0; s < sums_; ++s) {
        float* to = static_cast<float*>(arguments.operands[first_sum_ + s]) + b * channels_;
        for (int64_t c = 0; c < channels_; ++c)
          to[c] = static_cast<float>(totals[static_cast<int64_t>(s) * channels_ + c]);
      }
    }
  }

 private:
  size_t totals_at() const { return (blocks_.scratch_bytes() + 63) / 64 * 64; }

  ChainBlocks blocks_;
  size_t first_sum_;
  size_t sums_;
  int64_t block_count_;
  int64_t channels_;
  ColumnSums add_;
};

}  // namespace

std::vector<KernelPtr> chain_sums_candidates(const ChainSums& attributes,
                                             std::span<const TensorDesc> operands) {
  const size_t images =
      static_cast<size_t>(attributes.chain.inputs) + attributes.chain.outputs.size();
  const std::vector<int64_t>& sizes = operands[0].sizes;
  if (sizes.empty() || attributes.sums.empty()) return {};
  const int64_t channels = sizes.size() == 4 ? sizes[1] : sizes.back();
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].dtype.name != "float32") return {};
    if (i < images && operands[i].sizes != sizes) return {};
    if (i < images) continue;
    if (operands[i].sizes != std::vector<int64_t>{operands.back().sizes[0], channels} ||
        !operands[i].is_dense() || (channels > 1 && operands[i].strides[1] != 1))
      return {};
  }
  auto nest = LoopNest::make_by_channels(operands.first(images));
  if (!nest) return {};
  std::vector<KernelPtr> list = {
      std::make_shared<ChainSumsKernel>(attributes, *std::move(nest), operands.back())};
  if (KernelPtr special = make_norm_gradient_sums(attributes, operands))
    list.push_back(std::move(special));
  return list;
}

}  // namespace nimble
