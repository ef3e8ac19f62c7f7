#include <cstring>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"

namespace nimble {

void copy_reference(const Copy&, std::span<const TensorDesc> operands, void* const* data) {
  const std::vector<int64_t>& sizes = operands[0].sizes;
  const int64_t bytes = operands[0].dtype.bytes;
  std::vector<int64_t> index(sizes.size());
  const auto element = [&](size_t operand) {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] * operands[operand].strides[d];
    return static_cast<std::byte*>(data[operand]) + offset * bytes;
  };
  for (int64_t left = operands[0].numel(); left > 0; --left) {
    std::memcpy(element(1), element(0), static_cast<size_t>(bytes));
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
    }
  }
}

namespace {

using cases::dense;
using cases::image;

// Dense in another order of the dims, outermost first; elements `gap` apart.
TensorDesc in_order(const std::vector<int64_t>& sizes, const std::vector<size_t>& order,
                    const DType& dtype = cases::float32(), int64_t gap = 1) {
  TensorDesc desc = dense(sizes, dtype);
  int64_t stride = gap;
  for (size_t i = order.size(); i-- > 0;) {
    desc.strides[order[i]] = stride;
    stride *= sizes[order[i]];
  }
  return desc;
}

std::vector<DType> all_sizes() {
  // The test fills other types than float32 by words of four or eight bytes, so they have those.
  return {cases::float32(), cases::int32(), cases::int64()};
}

}  // namespace

std::vector<KernelCase> copy_test_cases() {
  std::vector<KernelCase> list;
  const auto add = [&](TensorDesc from, TensorDesc to) {
    list.push_back({Copy{}, {std::move(from), std::move(to)}});
  };
  for (const DType& dtype : all_sizes()) {
    // All orders of three dims, into all.
    const std::vector<int64_t> sizes = {3, 19, 8};
    const std::vector<std::vector<size_t>> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (const auto& from : orders) {
      for (const auto& to : orders) {
        add(in_order(sizes, from, dtype), in_order(sizes, to, dtype));
        add(in_order(sizes, from, dtype, 2), in_order(sizes, to, dtype, 3));
      }
    }
    add(dense({}, dtype), dense({}, dtype));
    add(dense({4, 0}, dtype), dense({4, 0}, dtype));
    add(dense({300, 5}, dtype), dense({300, 5}, dtype));
  }
  for (int64_t channels : {1, 2, 3, 4, 5, 8, 16, 31, 67}) {
    for (int64_t side : {1, 2, 7, 13}) {
      const TensorDesc first = dense({2, channels, side, side + 1});
      const TensorDesc last = image(2, channels, side, side + 1);
      const TensorDesc wide = image(2, channels, side, side + 1, channels + 3);
      add(first, last);
      add(last, first);
      add(first, wide);
      add(wide, first);
      add(wide, last);
      add(last, wide);
    }
  }
  for (int64_t size = 1; size <= 67; size += 3) {
    add(in_order({size, 70 - size}, {1, 0}), dense({size, 70 - size}));
    add(dense({size}), dense({size}));
  }
  // Broadcasts in every position.
  for (size_t mask = 0; mask < 16; ++mask) {
    const std::vector<int64_t> sizes = {2, 5, 3, 17};
    TensorDesc from = dense(sizes);
    for (size_t dim = 0; dim < 4; ++dim)
      if (mask >> dim & 1) from.strides[dim] = 0;
    add(from, dense(sizes));
    add(from, image(2, 5, 3, 17));
  }
  add(in_order({2, 3, 2, 3, 2}, {4, 2, 0, 1, 3}), in_order({2, 3, 2, 3, 2}, {0, 3, 1, 4, 2}));
  TensorDesc slice = dense({4, 300});
  slice.strides[0] = 900;
  slice.offset = 5;
  add(slice, dense({4, 300}));
  add(dense({4, 300}), slice);
  return list;
}

std::vector<KernelCase> copy_bench_cases() {
  std::vector<KernelCase> list;
  for (const auto& s : std::vector<std::vector<int64_t>>{
           {1, 3, 224, 224}, {1, 256, 56, 56}, {1, 64, 112, 112}, {1, 88, 28, 28}}) {
    const TensorDesc first = dense(s);
    const TensorDesc last = image(s[0], s[1], s[2], s[3]);
    list.push_back({Copy{}, {first, last}});
    list.push_back({Copy{}, {last, first}});
  }
  // Into and out of a slice of the channels; dense.
  list.push_back({Copy{}, {image(1, 32, 56, 56), image(1, 32, 56, 56, 256)}});
  list.push_back({Copy{}, {image(1, 128, 28, 28, 512), image(1, 128, 28, 28)}});
  list.push_back({Copy{}, {image(1, 64, 112, 112), image(1, 64, 112, 112)}});
  // Heads of attention.
  list.push_back({Copy{}, {in_order({1, 12, 128, 64}, {0, 2, 1, 3}), dense({1, 12, 128, 64})}});
  list.push_back({Copy{}, {in_order({1, 12, 64, 128}, {0, 1, 3, 2}), dense({1, 12, 64, 128})}});
  // A shuffle of channels.
  list.push_back({Copy{},
                  {in_order({1, 58, 2, 28, 28}, {0, 3, 4, 2, 1}),
                   in_order({1, 58, 2, 28, 28}, {0, 3, 4, 1, 2})}});
  return list;
}

}  // namespace nimble
