#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/chain_reference.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_blocks.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

void chain_sums_reference(const ChainSums& attributes, std::span<const TensorDesc> operands,
                          void* const* data) {
  const Chain& chain = attributes.chain;
  const auto inputs = static_cast<size_t>(chain.inputs);
  const size_t first_sum = inputs + chain.outputs.size();
  const int64_t blocks = operands.back().sizes[0];
  const int64_t channels = operands.back().sizes[1];
  std::vector<double> totals(attributes.sums.size() * static_cast<size_t>(blocks * channels));
  std::vector<float> registers(inputs + chain.steps.size());
  for_each_index(operands[0].sizes, [&](const std::vector<int64_t>& index) {
    const auto element = [&](size_t operand) -> float& {
      return static_cast<float*>(data[operand])[place(operands[operand], index)];
    };
    for (size_t i = 0; i < inputs; ++i) registers[i] = element(i);
    evaluate_chain(chain, registers);
    for (size_t o = 0; o < chain.outputs.size(); ++o)
      element(inputs + o) = registers[static_cast<size_t>(chain.outputs[o])];
    const PlaceInBlocks at = place_in_blocks(operands[0].sizes, index, blocks);
    for (size_t s = 0; s < attributes.sums.size(); ++s)
      totals[s * static_cast<size_t>(blocks * channels) +
             static_cast<size_t>(at.block * channels + at.channel)] +=
          registers[static_cast<size_t>(attributes.sums[s])];
  });
  for (size_t s = 0; s < attributes.sums.size(); ++s)
    for (int64_t i = 0; i < blocks * channels; ++i)
      static_cast<float*>(data[first_sum + s])[i] = static_cast<float>(
          totals[s * static_cast<size_t>(blocks * channels) + static_cast<size_t>(i)]);
}

namespace {

using cases::dense;
using cases::image;

ChainStep step(ChainOp op, int x, int y = -1) {
  return {.op = op, .x = x, .y = y, .z = -1, .value = 0, .activation = {}};
}

TensorDesc by_channel(const TensorDesc& image) {
  TensorDesc vector = image;
  std::fill(vector.strides.begin(), vector.strides.end(), 0);
  vector.strides[image.sizes.size() == 4 ? 1 : image.sizes.size() - 1] = 1;
  return vector;
}

int64_t channels_of(const TensorDesc& image) {
  return image.sizes.size() == 4 ? image.sizes[1] : image.sizes.back();
}

KernelCase plain_sum(const TensorDesc& x, int64_t blocks) {
  return {ChainSums{.chain = {1, {}, {}}, .sums = {0}}, {x, dense({blocks, channels_of(x)})}};
}

// Batch norm behind a relu, backward: what comes through the relu is written, if asked for, and
// summed up, and so is its product with the normalised input.
// Inputs: gradient, result of the relu, input of the norm, mean, 1 / deviation.
KernelCase batch_norm_sums(const TensorDesc& x, int64_t blocks, bool writes) {
  ChainStep through = step(ChainOp::kActivationGradient, 0, 1);
  through.activation = {ActivationKind::kRelu};
  const Chain chain{
      5,
      {through, step(ChainOp::kSub, 2, 3), step(ChainOp::kMul, 6, 4), step(ChainOp::kMul, 5, 7)},
      writes ? std::vector<int>{5} : std::vector<int>{}};
  const TensorDesc sums = dense({blocks, channels_of(x)});
  KernelCase made{ChainSums{.chain = chain, .sums = {5, 8}},
                  {x, x, x, by_channel(x), by_channel(x)}};
  if (writes) made.operands.push_back(x);
  made.operands.insert(made.operands.end(), 2, sums);
  return made;
}

// The same in front of a relu6, of which nothing was kept: what the norm makes is made again.
// Inputs: gradient, input of the norm, scale, shift, mean.
KernelCase batch_norm_sums_again(const TensorDesc& x, int64_t blocks) {
  ChainStep made = step(ChainOp::kMulAdd, 1, 2);
  made.z = 3;
  ChainStep through = step(ChainOp::kActivationGradient, 0, 5);
  through.activation = {ActivationKind::kClamp, 0, 6};
  const TensorDesc vector = by_channel(x);
  const TensorDesc sums = dense({blocks, channels_of(x)});
  return {
      ChainSums{
          .chain = {5, {made, through, step(ChainOp::kSub, 1, 4), step(ChainOp::kMul, 7, 6)}, {}},
          .sums = {6, 8}},
      {x, x, vector, vector, vector, sums, sums}};
}

}  // namespace

std::vector<KernelCase> chain_sums_test_cases() {
  std::vector<KernelCase> list;
  const TensorDesc odd{
      .dtype = cases::float32(), .sizes = {4, 3, 9}, .strides = {80, 20, 2}, .offset = 5};
  std::vector<TensorDesc> shapes = {dense({7}),
                                    dense({1, 1}),
                                    dense({19, 1}),
                                    dense({5, 33}),
                                    dense({64, 10}),
                                    dense({3, 11, 130}),
                                    dense({0, 5}),
                                    dense({2, 5, 7, 6}),
                                    image(0, 5, 3, 3),
                                    image(3, 1, 5, 7),
                                    image(1, 1100, 2, 3),
                                    image(2, 24, 9, 7, 40),
                                    image(2, 200, 3, 5, 260),
                                    odd};
  for (int64_t channels : {3, 8, 16, 17, 24, 48, 67, 100})
    shapes.push_back(image(2, channels, 5, 9));
  for (const TensorDesc& shape : shapes) {
    for (int64_t blocks : {1, 3}) {
      list.push_back(plain_sum(shape, blocks));
      list.push_back(batch_norm_sums(shape, blocks, false));
      list.push_back(batch_norm_sums(shape, blocks, true));
      list.push_back(batch_norm_sums_again(shape, blocks));
    }
  }
  // An input that is written as it is, and summed; numbers; a sum of what is the same everywhere.
  const TensorDesc x = image(2, 24, 5, 7);
  TensorDesc number = x;
  number.strides = {0, 0, 0, 0};
  list.push_back({ChainSums{.chain = {2, {step(ChainOp::kMul, 0, 1)}, {0, 2}}, .sums = {0, 2, 1}},
                  {x, number, x, x, dense({2, 24}), dense({2, 24}), dense({2, 24})}});
  return list;
}

std::vector<KernelCase> chain_sums_bench_cases() {
  std::vector<KernelCase> list;
  for (const TensorDesc& x : {image(32, 64, 32, 32), image(32, 16, 32, 32), image(32, 24, 32, 32),
                              image(32, 256, 8, 8), image(32, 960, 4, 4), image(32, 2048, 4, 4)}) {
    list.push_back(plain_sum(x, 4));
    list.push_back(batch_norm_sums(x, 4, false));
    list.push_back(batch_norm_sums(x, 4, true));
    list.push_back(batch_norm_sums_again(x, 4));
  }
  for (const TensorDesc& x :
       {image(32, 144, 8, 8), image(32, 192, 4, 4), image(32, 576, 2, 2), image(32, 960, 1, 1)})
    list.push_back(batch_norm_sums_again(x, 1));
  list.push_back(plain_sum(dense({1024, 3072}), 4));
  list.push_back(plain_sum(dense({32, 1000}), 1));
  return list;
}

}  // namespace nimble
