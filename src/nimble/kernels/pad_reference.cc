#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"

namespace nimble {

void pad_reference(const Pad& pad, std::span<const TensorDesc> operands, void* const* data) {
  const TensorDesc& input = operands[0];
  const TensorDesc& output = operands[1];
  std::vector<int64_t> index(output.sizes.size());
  for (int64_t left = output.numel(); left > 0; --left) {
    int64_t from = 0;
    int64_t to = 0;
    bool inside = true;
    for (size_t d = 0; d < index.size(); ++d) {
      const int64_t at = index[d] - pad.begin[d];
      inside = inside && at >= 0 && at < input.sizes[d];
      from += at * input.strides[d];
      to += index[d] * output.strides[d];
    }
    static_cast<float*>(data[1])[to] =
        inside ? static_cast<const float*>(data[0])[from] : pad.value;
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < output.sizes[d]) break;
      index[d] = 0;
    }
  }
}

namespace {

using cases::dense;
using cases::image;

std::vector<int64_t> padded(std::vector<int64_t> sizes, const std::vector<int64_t>& begin,
                            const std::vector<int64_t>& end) {
  for (size_t d = 0; d < sizes.size(); ++d) sizes[d] += begin[d] + end[d];
  return sizes;
}

}  // namespace

std::vector<KernelCase> pad_test_cases() {
  std::vector<KernelCase> list;
  // By rank, each dim with every small amount before and behind, some of them crops.
  for (const auto& sizes :
       std::vector<std::vector<int64_t>>{{5}, {3, 17}, {4, 3, 9}, {2, 3, 4, 5}, {2, 3, 2, 4, 3}}) {
    const size_t rank = sizes.size();
    for (size_t dim = 0; dim < rank; ++dim) {
      for (int64_t before = -2; before <= 3; ++before) {
        for (int64_t behind = -1; behind <= 2; ++behind) {
          std::vector<int64_t> begin(rank), end(rank);
          begin[dim] = before;
          end[dim] = behind;
          begin[rank - 1] += 1;
          if (sizes[dim] + begin[dim] + end[dim] < 0) continue;
          const auto out = padded(sizes, begin, end);
          list.push_back({Pad{begin, 0.5f}, {dense(sizes), dense(out)}});
          if (rank != 4) continue;
          const auto last = [](const std::vector<int64_t>& s, int64_t gap) {
            return image(s[0], s[1], s[2], s[3], s[1] + gap);
          };
          list.push_back({Pad{begin, 0.5f}, {last(sizes, 0), last(out, 0)}});
          list.push_back({Pad{begin, 0.5f}, {last(sizes, 2), last(out, 3)}});
          list.push_back({Pad{begin, 0.5f}, {dense(sizes), last(out, 1)}});
        }
      }
    }
  }
  for (int64_t channels : {1, 3, 16, 67}) {
    for (int64_t amount : {0, 1, 3})
      list.push_back(
          {Pad{{0, 0, amount, amount}, -1.0f},
           {image(2, channels, 5, 7), image(2, channels, 5 + 2 * amount, 7 + 2 * amount)}});
    // Channels that are added, as of a shortcut that widens.
    list.push_back(
        {Pad{{0, channels, 0, 0}, 0.0f}, {image(1, channels, 4, 4), image(1, 4 * channels, 4, 4)}});
  }
  list.push_back({Pad{{}, 1.0f}, {dense({}), dense({})}});
  list.push_back({Pad{{2, 1}, 1.0f}, {dense({0, 3}), dense({4, 5})}});
  list.push_back({Pad{{-2, 0}, 1.0f}, {dense({2, 3}), dense({0, 3})}});
  // Nothing of the input is left.
  list.push_back({Pad{{-9, 1}, 1.0f}, {dense({4, 3}), dense({3, 5})}});
  return list;
}

std::vector<KernelCase> pad_bench_cases() {
  std::vector<KernelCase> list;
  const auto around = [&](const TensorDesc& from, int64_t before, int64_t behind) {
    const auto& s = from.sizes;
    list.push_back({Pad{{0, 0, before, before}, 0},
                    {from, image(s[0], s[1], s[2] + before + behind, s[3] + before + behind)}});
  };
  around(image(1, 3, 224, 224), 0, 1);
  around(image(1, 64, 112, 112), 1, 1);
  around(image(1, 96, 112, 112), 0, 1);
  around(image(1, 88, 28, 28), 2, 2);
  return list;
}

}  // namespace nimble
