#include <algorithm>
#include <cmath>
#include <limits>

#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"
#include "nimble/kernels/reference_loops.h"

namespace nimble {

void attention_reference(const Attention& attributes, std::span<const TensorDesc> operands,
                         void* const* data) {
  const TensorDesc& query = operands[0];
  const TensorDesc& key = operands[1];
  const TensorDesc& value = operands[2];
  const TensorDesc& output = operands.back();
  const auto row_of = [&](size_t operand, int64_t b, int64_t h, int64_t row) {
    const std::vector<int64_t>& s = operands[operand].strides;
    return static_cast<float*>(data[operand]) + b * s[0] + h * s[1] + row * s[2];
  };
  const int64_t keys = key.sizes[2];
  constexpr double kLowest = -std::numeric_limits<double>::infinity();

  for_each_index({output.sizes[0], output.sizes[1], output.sizes[2]}, [&](const auto& index) {
    const int64_t b = index[0];
    const int64_t h = index[1];
    const int64_t l = index[2];
    const float* q = row_of(0, b, h, l);
    std::vector<double> scores(static_cast<size_t>(keys), kLowest);
    double max = kLowest;
    for (int64_t s = 0; s < keys; ++s) {
      if (attributes.causal && s > l) continue;
      const float* k = row_of(1, b, h, s);
      double score = 0;
      for (int64_t e = 0; e < query.sizes[3]; ++e)
        score += static_cast<double>(q[e * query.strides[3]]) * k[e * key.strides[3]];
      score *= attributes.scale;
      if (attributes.mask) score += row_of(3, b, h, l)[s * operands[3].strides[3]];
      max = std::fmax(max, score);
      scores[static_cast<size_t>(s)] = score;
    }
    if (max == kLowest) max = 0;  // of a query that sees no key the result is 0
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - max);
    for (int64_t d = 0; d < value.sizes[3]; ++d) {
      double result = 0;
      for (int64_t s = 0; s < keys; ++s)
        result += scores[static_cast<size_t>(s)] * row_of(2, b, h, s)[d * value.strides[3]];
      row_of(operands.size() - 1, b, h, l)[d * output.strides[3]] =
          sum == 0 ? 0 : static_cast<float>(result / sum);
    }
  });
}

namespace {

// [batch, heads, length, size] as a view of a [batch, length, heads * size] tensor, of which it is
// one in `share`.
TensorDesc heads_of(int64_t batch, int64_t heads, int64_t length, int64_t size, int64_t share = 1) {
  const int64_t row = heads * size * share;
  return {.dtype = cases::float32(),
          .sizes = {batch, heads, length, size},
          .strides = {length * row, size, row, 1},
          .offset = (share - 1) * heads * size};
}

TensorDesc mask(std::vector<int64_t> sizes, std::vector<int64_t> strides) {
  return {.dtype = cases::float32(), .sizes = std::move(sizes), .strides = std::move(strides)};
}

struct Sizes {
  int64_t batch, heads, queries, keys, size, value_size;
};

KernelCase plain(const Sizes& s, bool causal = false, int64_t share = 1) {
  return {Attention{.scale = 1 / std::sqrt(std::max(1.0, static_cast<double>(s.size))),
                    .causal = causal},
          {heads_of(s.batch, s.heads, s.queries, s.size, share),
           heads_of(s.batch, s.heads, s.keys, s.size, share),
           heads_of(s.batch, s.heads, s.keys, s.value_size, share),
           heads_of(s.batch, s.heads, s.queries, s.value_size)}};
}

KernelCase masked(const Sizes& s, std::vector<int64_t> strides, bool causal = false) {
  KernelCase result = plain(s, causal);
  std::get<Attention>(result.attributes).mask = true;
  result.operands.insert(result.operands.begin() + 3,
                         mask({s.batch, s.heads, s.queries, s.keys}, std::move(strides)));
  return result;
}

}  // namespace

std::vector<KernelCase> attention_test_cases() {
  std::vector<KernelCase> list;
  for (bool causal : {false, true}) {
    for (int64_t size : {1, 3, 16, 64, 80})
      list.push_back(plain({1, 2, 9, 13, size, size}, causal));
    for (int64_t length : {1, 2, 5, 16, 17, 31, 33, 48, 64, 70}) {
      list.push_back(plain({1, 2, length, length, 8, 8}, causal));
      list.push_back(plain({2, 1, length, 7, 5, 3}, causal));
      list.push_back(plain({1, 1, 11, length, 4, 37}, causal));
    }
    list.push_back(plain({2, 3, 203, 101, 12, 20}, causal, 3));
    list.push_back(plain({1, 2, 120, 150, 3, 70}, causal, 2));
    list.push_back(plain({1, 2, 5, 0, 8, 8}, causal));
    list.push_back(plain({1, 2, 0, 5, 8, 8}, causal));
    list.push_back(plain({2, 0, 3, 5, 8, 8}, causal));
    list.push_back(plain({2, 2, 3, 5, 0, 4}, causal));
    for (int64_t length : {1, 6, 23, 67}) {
      const Sizes s{2, 2, length, 19, 8, 9};
      const int64_t pairs = length * 19;
      list.push_back(masked(s, {2 * pairs, pairs, 19, 1}, causal));
      list.push_back(masked(s, {0, 0, 19, 1}, causal));
      list.push_back(masked(s, {19, 0, 0, 1}, causal));
      list.push_back(masked(s, {0, pairs, 1, length}, causal));
      list.push_back(masked(s, {0, 1, 2, 0}, causal));
    }
  }
  // Dense operands; a scale below zero.
  using cases::dense;
  list.push_back(
      {Attention{.scale = -0.7},
       {dense({2, 3, 21, 10}), dense({2, 3, 18, 10}), dense({2, 3, 18, 6}), dense({2, 3, 21, 6})}});
  return list;
}

std::vector<KernelCase> attention_bench_cases() {
  return {plain({1, 12, 128, 128, 64, 64}),  // BERT-base
          masked({1, 12, 128, 128, 64, 64}, {0, 0, 0, 1}),
          masked({1, 12, 128, 128, 64, 64}, {0, 0, 128, 1}),
          plain({1, 12, 197, 197, 64, 64}, false, 3),    // ViT-B
          plain({1, 12, 1024, 1024, 64, 64}, true, 3)};  // GPT-2
}

}  // namespace nimble
