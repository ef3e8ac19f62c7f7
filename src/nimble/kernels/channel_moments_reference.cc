#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_blocks.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

// Two passes, in doubles.
void channel_moments_reference(const ChannelMoments&, std::span<const TensorDesc> operands,
                               void* const* data) {
  const TensorDesc& input = operands[0];
  const float* from = static_cast<const float*>(data[0]);
  const int64_t blocks = operands[1].sizes[0];
  const int64_t channels = operands[1].sizes[1];
  const auto places = static_cast<size_t>(blocks * channels);
  std::vector<double> sums(places), distances(places);
  std::vector<int64_t> counts(places);
  const auto visit_all = [&](const auto& visit) {
    for_each_index(input.sizes, [&](const std::vector<int64_t>& index) {
      const PlaceInBlocks at = place_in_blocks(input.sizes, index, blocks);
      visit(static_cast<size_t>(at.block * channels + at.channel), from[place(input, index)]);
    });
  };
  visit_all([&](size_t at, double x) {
    sums[at] += x;
    ++counts[at];
  });
  for (size_t i = 0; i < places; ++i)
    if (counts[i] > 0) sums[i] /= static_cast<double>(counts[i]);
  visit_all([&](size_t at, double x) { distances[at] += (x - sums[at]) * (x - sums[at]); });
  for (size_t i = 0; i < places; ++i) {
    static_cast<float*>(data[1])[i] = static_cast<float>(sums[i]);
    static_cast<float*>(data[2])[i] = static_cast<float>(distances[i]);
  }
}

namespace {

KernelCase moments(const TensorDesc& x, int64_t blocks) {
  const TensorDesc out = cases::dense({blocks, x.sizes.size() == 4 ? x.sizes[1] : x.sizes.back()});
  return {ChannelMoments{}, {x, out, out}};
}

}  // namespace

std::vector<KernelCase> channel_moments_test_cases() {
  using namespace cases;
  std::vector<KernelCase> list;
  for (const TensorDesc& x :
       {dense({19, 1}), dense({5, 33}), dense({3, 11, 130}), dense({2, 5, 7, 6}), image(3, 1, 5, 7),
        image(1, 1100, 2, 3), image(2, 24, 9, 7, 40), image(1, 16, 1, 1), image(2, 3, 5, 9),
        image(2, 8, 5, 9), image(2, 17, 5, 9), image(2, 32, 15, 9), image(2, 100, 5, 9)})
    for (int64_t blocks : {1, 3}) list.push_back(moments(x, blocks));
  return list;
}

std::vector<KernelCase> channel_moments_bench_cases() {
  using namespace cases;
  std::vector<KernelCase> list;
  for (const TensorDesc& x : {image(32, 64, 32, 32), image(32, 16, 32, 32), image(32, 24, 32, 32),
                              image(32, 256, 8, 8), image(32, 960, 4, 4), image(32, 2048, 4, 4)})
    list.push_back(moments(x, 4));
  return list;
}

}  // namespace nimble
