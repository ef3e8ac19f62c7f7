#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

#include "nimble/kernels/families.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nimble/kernels/attention.cc"
#include <hwy/foreach_target.h>  // first of the per-target headers

#include <hwy/highway.h>

#include "nimble/kernels/attention_tiles-inl.h"
#include "nimble/kernels/vector_rows-inl.h"

#ifndef NIMBLE_KERNELS_ATTENTION_SHARED_
#define NIMBLE_KERNELS_ATTENTION_SHARED_
namespace nimble {

struct AttentionPlan {
  int64_t batch, heads, queries, keys, size, value_size;
  std::array<int64_t, 4> query_strides, key_strides, value_strides, mask_strides, output_strides;
  float scale = 1;
  bool causal = false;
  bool mask = false;
};

}  // namespace nimble
#endif

// The scores of a block of queries are kept transposed, a query in each lane:
//
//   1. keys and values of a head are copied to scratch, so that the loops below have no tails;
//   2. for each block of queries:
//      a. its queries are transposed and scaled;
//      b. scores^T [keys, block] = keys @ queries^T; mask and causality are applied; the largest;
//      c. for so many keys as stay in the first-level cache: exponentials and their sums (without
//         a reduction across lanes), and output [block, value size] += scores^T^T @ values;
//      d. the output is divided by the sums.
HWY_BEFORE_NAMESPACE();
namespace nimble::HWY_NAMESPACE {
namespace {

using namespace attention;

constexpr size_t kKeys = 128;  // at a time; a multiple of kRows

class AttentionBlocks final : public Kernel {
 public:
  explicit AttentionBlocks(const AttentionPlan& plan) : plan_(plan) {
    keys_ = static_cast<size_t>(plan.keys);
    size_ = static_cast<size_t>(plan.size);
    value_size_ = static_cast<size_t>(plan.value_size);
    const size_t vectors = round_up(value_size_, kLanes) / kLanes;
    const size_t panels = round_up(vectors, kVectors) / kVectors;
    panel_ = panels == 0 ? 0 : (vectors + panels - 1) / panels * kLanes;

    values_at_ = round_up(round_up(keys_, kRows) * size_, kLanes);
    queries_at_ = values_at_ + keys_ * vectors * kLanes;
    scores_at_ = queries_at_ + size_ * kBlock;
    sums_at_ = scores_at_ + round_up(keys_, kRows) * kBlock;
    scratch_size_ = sums_at_ + vectors * kLanes * kBlock;
  }
  std::string name() const override { return "attention.blocks " + std::to_string(kBlock); }
  Work work() const override {
    const AttentionPlan& p = plan_;
    if (p.batch * p.heads * p.queries * p.value_size == 0) return {.rows = 0, .columns = 0};
    // Less than two blocks would hardly be worth a copy of the keys and values.
    const auto grain = static_cast<int64_t>(2 * kBlock);
    return {.rows = p.batch * p.heads,
            .row_grain = 1,
            .columns = p.queries,
            .column_grain = grain < p.queries ? grain : 0};
  }
  size_t scratch_bytes(const Part&) const override { return scratch_size_ * sizeof(float); }

  void run(const KernelArguments& arguments) const override {
    float* scratch = reinterpret_cast<float*>(arguments.scratch);
    const Part& part = arguments.part;
    const auto operand = [&](size_t i) { return static_cast<float*>(arguments.operands[i]); };
    const auto begin = static_cast<size_t>(part.column_begin);
    const auto end = static_cast<size_t>(part.column_end);
    for (int64_t row = part.row_begin; row < part.row_end; ++row) {
      const int64_t b = row / plan_.heads;
      const int64_t h = row % plan_.heads;
      const auto offset = [&](const std::array<int64_t, 4>& s) { return b * s[0] + h * s[1]; };
      Head head;
      head.queries = operand(0) + offset(plan_.query_strides);
      head.keys = operand(1) + offset(plan_.key_strides);
      head.values = operand(2) + offset(plan_.value_strides);
      head.mask = plan_.mask ? operand(3) + offset(plan_.mask_strides) : nullptr;
      head.output = operand(plan_.mask ? 4 : 3) + offset(plan_.output_strides);
      head.copied = visible_keys(end);
      copy_keys_and_values(head, scratch);
      for (size_t q = begin; q < end; q += kBlock) {
        const size_t count = std::min(kBlock, end - q);
        with_vectors((count + kLanes - 1) / kLanes,
                     [&](auto n) { compute_block<n>(head, q, count, scratch); });
      }
    }
  }

 private:
  struct Head {
    const float* queries;
    const float* keys;
    const float* values;
    const float* mask;
    float* output;
    size_t copied;  // keys and values in scratch
  };

  // The keys that any of the queries before `end` sees.
  size_t visible_keys(size_t end) const { return plan_.causal ? std::min(end, keys_) : keys_; }

  void copy_keys_and_values(const Head& head, float* scratch) const {
    for (size_t s = 0; s < head.copied; ++s) {
      const float* from = head.keys + static_cast<int64_t>(s) * plan_.key_strides[2];
      float* to = scratch + s * size_;
      for_each_vector(size_, [&](size_t i, size_t count, auto whole) HWY_ATTR {
        store_part(load_part(from + i, count, whole), to + i, count, whole);
      });
    }
    std::fill(scratch + head.copied * size_, scratch + round_up(head.copied, kRows) * size_, 0.0f);

    const FloatTag d;
    for (size_t begin = 0; begin < value_size_; begin += panel_) {
      const size_t columns = std::min(panel_, value_size_ - begin);
      float* to = scratch + values_at_ + begin * head.copied;
      for (size_t s = 0; s < head.copied; ++s, to += round_up(columns, kLanes)) {
        const float* from = head.values + static_cast<int64_t>(s) * plan_.value_strides[2] + begin;
        for_each_vector(columns, [&](size_t i, size_t count, auto whole) HWY_ATTR {
          hn::Store(load_part(from + i, count, whole), d, to + i);
        });
      }
    }
  }

  // Queries [first, first + count), n vectors of them, the last one perhaps not full.
  template <size_t n>
  void compute_block(const Head& head, size_t first, size_t count, float* scratch) const {
    const FloatTag d;
    const size_t keys = visible_keys(first + count);
    transpose_queries<n>(head, first, count, scratch + queries_at_);

    FloatVector max[n];
    FloatVector sum[n];
    for (size_t v = 0; v < n; ++v) {
      max[v] = hn::Set(d, -std::numeric_limits<float>::infinity());
      sum[v] = hn::Zero(d);
    }
    for (size_t s = 0; s < keys; s += kKeys) {
      const size_t end = std::min(s + kKeys, keys);
      compute_scores<n>(s, end, scratch);
      float* scores = scratch + scores_at_;
      if (head.mask) add_mask<n>(head, first, count, s, end, scores);
      if (plan_.causal) hide_later_keys<n>(first, s, end, scores);
      for (size_t k = s; k < end; ++k)
        for (size_t v = 0; v < n; ++v)
          max[v] = hn::Max(max[v], hn::Load(d, scores + (k * n + v) * kLanes));
    }
    // A query that sees no key has the result 0, as in the framework.
    for (size_t v = 0; v < n; ++v)
      max[v] = hn::IfThenZeroElse(
          hn::Eq(max[v], hn::Set(d, -std::numeric_limits<float>::infinity())), max[v]);

    HWY_ALIGN float shares[n * kLanes] = {};  // by query: one over the sum, once it is known
    size_t s = 0;
    do {
      const size_t end = std::min(s + kKeys, keys);
      take_exponentials<n>(s, end, max, sum, scratch + scores_at_);
      if (end == keys) {
        for (size_t v = 0; v < n; ++v) {
          const auto share = hn::Div(hn::Set(d, 1.0f), sum[v]);
          hn::Store(hn::IfThenZeroElse(hn::Eq(sum[v], hn::Zero(d)), share), d, shares + v * kLanes);
        }
      }
      for (size_t begin = 0; begin < value_size_; begin += panel_) {
        const Product product{.first = first,
                              .count = count,
                              .width = n * kLanes,
                              .key_begin = s,
                              .key_end = end,
                              .last = end == keys,
                              .column = begin};
        with_vectors((std::min(panel_, value_size_ - begin) + kLanes - 1) / kLanes,
                     [&](auto m) { add_values<m>(head, product, shares, scratch); });
      }
      s = end;
    } while (s < keys);
  }

  template <size_t n>
  void transpose_queries(const Head& head, size_t first, size_t count, float* to) const {
    const FloatTag d;
    const auto scale = hn::Set(d, plan_.scale);
    const int64_t stride = plan_.query_strides[2];
    for (size_t v = 0; v < n; ++v) {
      const size_t row = v * kLanes;
      for_each_column(head.queries + static_cast<int64_t>(first + row) * stride, stride, 1,
                      std::min(kLanes, count - row), size_, [&](size_t e, FloatVector x) HWY_ATTR {
                        hn::Store(hn::Mul(x, scale), d, to + (e * n + v) * kLanes);
                      });
    }
  }

  template <size_t n>
  void compute_scores(size_t begin, size_t end, float* scratch) const {
    const FloatTag d;
    for (size_t s = begin; s < end; s += kRows) {
      float* to = scratch + scores_at_ + s * n * kLanes;
      multiply_tile<n>(
          {scratch + s * size_, size_, 1}, scratch + queries_at_, size_,
          [&](size_t, size_t) HWY_ATTR { return hn::Zero(d); },
          [&](size_t r, size_t v, FloatVector x)
              HWY_ATTR { hn::Store(x, d, to + (r * n + v) * kLanes); });
    }
  }

  struct Product {
    size_t first, count;  // queries
    size_t width;         // of the scores
    size_t key_begin, key_end;
    bool last;  // of the keys
    size_t column;
  };

  // Adds the keys' share to the output's columns from p.column on, m vectors of them.
  template <size_t m>
  void add_values(const Head& head, const Product& p, const float* shares, float* scratch) const {
    const FloatTag d;
    const float* values = scratch + values_at_ + p.column * head.copied + p.key_begin * m * kLanes;
    const float* scores = scratch + scores_at_ + p.key_begin * p.width;
    const size_t columns = std::min(panel_, value_size_ - p.column);
    for (size_t q = 0; q < p.count; q += kRows) {
      float* sums = scratch + sums_at_ + p.column * kBlock + q * m * kLanes;
      float* output =
          head.output + static_cast<int64_t>(p.first + q) * plan_.output_strides[2] + p.column;
      multiply_tile<m>(
          {scores + q, 1, p.width}, values, p.key_end - p.key_begin,
          [&](size_t r, size_t v) HWY_ATTR {
            return p.key_begin == 0 ? hn::Zero(d) : hn::Load(d, sums + (r * m + v) * kLanes);
          },
          [&](size_t r, size_t v, FloatVector x) HWY_ATTR {
            if (!p.last) return hn::Store(x, d, sums + (r * m + v) * kLanes);
            if (q + r >= p.count) return;
            const auto y = hn::Mul(x, hn::Set(d, shares[q + r]));
            float* at = output + static_cast<int64_t>(r) * plan_.output_strides[2] + v * kLanes;
            if (columns - v * kLanes >= kLanes)
              hn::StoreU(y, d, at);
            else
              store_first(d, y, at, columns - v * kLanes);
          });
    }
  }

  template <size_t n>
  void add_mask(const Head& head, size_t first, size_t count, size_t begin, size_t end,
                float* scores) const {
    const FloatTag d;
    const auto [unused_b, unused_h, row_stride, column_stride] = plan_.mask_strides;
    if (row_stride == 0) {
      for (size_t s = begin; s < end; ++s) {
        const auto addend = hn::Set(d, head.mask[static_cast<int64_t>(s) * column_stride]);
        float* to = scores + s * n * kLanes;
        for (size_t v = 0; v < n; ++v, to += kLanes)
          hn::Store(hn::Add(hn::Load(d, to), addend), d, to);
      }
      return;
    }
    for (size_t v = 0; v < n; ++v) {
      const float* from = head.mask + static_cast<int64_t>(first + v * kLanes) * row_stride +
                          static_cast<int64_t>(begin) * column_stride;
      for_each_column(from, row_stride, column_stride, std::min(kLanes, count - v * kLanes),
                      end - begin, [&](size_t s, FloatVector addend) HWY_ATTR {
                        float* to = scores + ((begin + s) * n + v) * kLanes;
                        hn::Store(hn::Add(hn::Load(d, to), addend), d, to);
                      });
    }
  }

  template <size_t n>
  static void hide_later_keys(size_t first, size_t begin, size_t end, float* scores) {
    const FloatTag d;
    const auto hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
    for (size_t s = std::max(begin, first + 1); s < end; ++s) {
      for (size_t v = 0; v < n; ++v) {
        const size_t query = first + v * kLanes;
        if (query >= s) continue;
        float* to = scores + (s * n + v) * kLanes;
        const auto earlier = hn::FirstN(d, std::min(kLanes, s - query));
        hn::Store(hn::IfThenElse(earlier, hidden, hn::Load(d, to)), d, to);
      }
    }
  }

  template <size_t n>
  static void take_exponentials(size_t begin, size_t end, const FloatVector (&max)[n],
                                FloatVector (&sum)[n], float* scores) {
    const FloatTag d;
    for (size_t s = begin; s < end; ++s) {
      for (size_t v = 0; v < n; ++v) {
        float* at = scores + (s * n + v) * kLanes;
        const auto e = exp_of_nonpositive(hn::Sub(hn::Load(d, at), max[v]));
        sum[v] = hn::Add(sum[v], e);
        hn::Store(e, d, at);
      }
    }
  }

  AttentionPlan plan_;
  size_t keys_, size_, value_size_;
  size_t panel_;  // columns of the values that are multiplied at a time

  // In scratch memory, in elements: keys [keys, size], with zeros behind up to a multiple of kRows;
  size_t values_at_;   // panels of [keys, panel], whole vectors
  size_t queries_at_;  // [size, block]
  size_t scores_at_;   // [keys, block]
  size_t sums_at_;     // of the output: panels of [block, panel]
  size_t scratch_size_;
};

KernelPtr make_attention(const AttentionPlan& plan) {
  return std::make_shared<AttentionBlocks>(plan);
}

}  // namespace
}  // namespace nimble::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nimble {

HWY_EXPORT(make_attention);

std::vector<KernelPtr> attention_candidates(const Attention& attributes,
                                            std::span<const TensorDesc> operands) {
  for (const TensorDesc& operand : operands)
    if (operand.dtype.name != "float32" || operand.sizes.size() != 4) return {};
  const TensorDesc& query = operands[0];
  const TensorDesc& key = operands[1];
  const TensorDesc& value = operands[2];
  const TensorDesc& output = operands.back();
  for (const TensorDesc* operand : {&query, &key, &value, &output})
    if (operand->sizes[3] > 1 && operand->strides[3] != 1) return {};
  const auto strides = [](const TensorDesc& desc) {
    std::array<int64_t, 4> result;
    for (size_t d = 0; d < 4; ++d) result[d] = desc.sizes[d] == 1 ? 0 : desc.strides[d];
    return result;
  };
  AttentionPlan plan{.batch = output.sizes[0],
                     .heads = output.sizes[1],
                     .queries = query.sizes[2],
                     .keys = key.sizes[2],
                     .size = query.sizes[3],
                     .value_size = value.sizes[3],
                     .query_strides = strides(query),
                     .key_strides = strides(key),
                     .value_strides = strides(value),
                     .mask_strides = {},
                     .output_strides = strides(output),
                     .scale = static_cast<float>(attributes.scale),
                     .causal = attributes.causal,
                     .mask = attributes.mask};
  if (attributes.mask) plan.mask_strides = strides(operands[3]);
  return {HWY_DYNAMIC_DISPATCH(make_attention)(plan)};
}

}  // namespace nimble
#endif
