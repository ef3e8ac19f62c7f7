#include <algorithm>
#include <cmath>
#include <limits>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"

namespace nimble {
namespace {

int64_t offset_of(const TensorDesc& desc, const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d)
    if (desc.sizes[d] != 1) offset += index[d] * desc.strides[d];
  return offset;
}

// Calls visit(index) for every index below the sizes.
template <class Visit>
void for_each_index(const TensorDesc& desc, const Visit& visit) {
  std::vector<int64_t> index(desc.sizes.size());
  for (int64_t left = desc.numel(); left > 0; --left) {
    visit(index);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < desc.sizes[d]) break;
      index[d] = 0;
    }
  }
}

}  // namespace

void reduce_reference(const Reduce& reduce, std::span<const TensorDesc> operands,
                      void* const* data) {
  const TensorDesc& input = operands[0];
  const TensorDesc& output = operands[1];
  const float* from = static_cast<const float*>(data[0]);
  float* to = static_cast<float*>(data[1]);
  const bool max = reduce.kind == Reduce::Kind::kMax;
  const bool min = reduce.kind == Reduce::Kind::kMin;
  const double infinity = std::numeric_limits<double>::infinity();

  const int64_t outputs = output.numel();
  if (outputs == 0) return;
  const int64_t count = input.numel() / outputs;
  // By output in row-major order: a reduced dim has just index 0 there.
  std::vector<double> totals(static_cast<size_t>(outputs), max ? -infinity : min ? infinity : 0);
  for_each_index(input, [&](const std::vector<int64_t>& index) {
    size_t at = 0;
    for (size_t d = 0; d < index.size(); ++d)
      at = at * static_cast<size_t>(output.sizes[d]) +
           static_cast<size_t>(output.sizes[d] == 1 ? 0 : index[d]);
    const double x = from[offset_of(input, index)];
    double& total = totals[at];
    if (max || min) {
      if (std::isnan(x) || (max ? x > total : x < total)) total = x;
    } else {
      total += x;
    }
  });
  size_t at = 0;
  for_each_index(output, [&](const std::vector<int64_t>& index) {
    const double total = totals[at++];
    to[offset_of(output, index)] = static_cast<float>(
        reduce.kind == Reduce::Kind::kMean ? total / static_cast<double>(count) : total);
  });
}

namespace {

using cases::dense;
using cases::image;

constexpr Reduce::Kind kKinds[] = {Reduce::Kind::kSum, Reduce::Kind::kMean, Reduce::Kind::kMax,
                                   Reduce::Kind::kMin};

KernelCase reduce_case(Reduce::Kind kind, const std::vector<int64_t>& dims, const TensorDesc& input,
                       bool channels_last = false) {
  std::vector<int64_t> sizes = input.sizes;
  for (int64_t dim : dims) sizes[static_cast<size_t>(dim)] = 1;
  const TensorDesc output =
      channels_last ? image(sizes[0], sizes[1], sizes[2], sizes[3]) : dense(sizes);
  return {Reduce{kind, dims}, {input, output}};
}

}  // namespace

std::vector<KernelCase> reduce_test_cases() {
  std::vector<KernelCase> list;
  size_t turn = 0;
  const auto kind = [&] { return kKinds[turn++ % 4]; };
  // Every set of dims of several shapes.
  for (const auto& sizes : std::vector<std::vector<int64_t>>{
           {}, {1}, {67}, {5, 33}, {3, 4, 19}, {2, 19, 3, 7}, {2, 3, 2, 3, 5}}) {
    for (size_t mask = 0; mask < size_t{1} << sizes.size(); ++mask) {
      std::vector<int64_t> dims;
      for (size_t dim = 0; dim < sizes.size(); ++dim)
        if (mask >> dim & 1) dims.push_back(static_cast<int64_t>(dim));
      for (int i = 0; i < 4; ++i) {
        list.push_back(reduce_case(kind(), dims, dense(sizes)));
        if (sizes.size() != 4) continue;
        const TensorDesc last = image(sizes[0], sizes[1], sizes[2], sizes[3]);
        const TensorDesc wide = image(sizes[0], sizes[1], sizes[2], sizes[3], sizes[1] + 5);
        list.push_back(reduce_case(kind(), dims, last));
        list.push_back(reduce_case(kind(), dims, last, true));
        list.push_back(reduce_case(kind(), dims, wide, true));
      }
    }
  }
  for (int64_t size = 1; size <= 67; size += 2) {
    list.push_back(reduce_case(kind(), {1}, dense({3, size})));
    list.push_back(reduce_case(kind(), {0}, dense({7, size})));
    list.push_back(reduce_case(kind(), {2, 3}, image(2, size, 3, 2), true));
    turn += 1;
  }
  for (Reduce::Kind each : kKinds) {
    list.push_back(reduce_case(each, {1}, dense({2, 3001})));
    list.push_back(reduce_case(each, {2, 3}, image(1, 130, 20, 21), true));
    TensorDesc odd = dense({4, 6, 5});
    odd.strides = {2, 90, 13};
    odd.offset = 3;
    list.push_back(reduce_case(each, {0}, odd));
    list.push_back(reduce_case(each, {1, 2}, odd));
    list.push_back(reduce_case(each, {0, 1, 2}, odd));
    TensorDesc expanded = dense({4, 6, 5});
    expanded.strides = {5, 0, 1};
    list.push_back(reduce_case(each, {1}, expanded));
    list.push_back(reduce_case(each, {2}, expanded));
  }
  list.push_back(reduce_case(Reduce::Kind::kSum, {1}, dense({4, 0, 3})));
  list.push_back(reduce_case(Reduce::Kind::kMean, {1}, dense({4, 0, 3})));
  list.push_back(reduce_case(Reduce::Kind::kSum, {1}, dense({0, 5})));
  return list;
}

std::vector<KernelCase> reduce_bench_cases() {
  std::vector<KernelCase> list;
  for (const TensorDesc& x :
       {image(1, 2048, 7, 7), image(1, 1280, 7, 7), image(1, 96, 112, 112), image(1, 240, 28, 28)})
    list.push_back(reduce_case(Reduce::Kind::kMean, {2, 3}, x, true));
  list.push_back(reduce_case(Reduce::Kind::kMean, {2, 3}, dense({1, 2048, 7, 7})));
  list.push_back(reduce_case(Reduce::Kind::kMean, {2}, dense({1, 128, 768})));
  list.push_back(reduce_case(Reduce::Kind::kMean, {1}, dense({1, 197, 768})));
  list.push_back(reduce_case(Reduce::Kind::kSum, {0, 1, 2, 3}, image(1, 64, 112, 112)));
  list.push_back(reduce_case(Reduce::Kind::kMax, {1}, dense({128, 3072})));
  return list;
}

}  // namespace nimble
