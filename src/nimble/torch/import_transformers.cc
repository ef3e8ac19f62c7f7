// Ops that transformers and recurrent networks have in training, beside those of import_ops.cc.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "nimble/passes/chain_steps.h"
#include "nimble/torch/import_table.h"

namespace nimble {
namespace {

// The same elements, one row of `columns` after the other; a copy if they do not lie like that.
TensorRef as_rows(CallReader& call, const TensorRef& tensor, int64_t columns) {
  TensorRef found = tensor;
  if (!found.desc.is_row_major())
    found = call.emit(Copy{}, {tensor}, row_major(tensor.desc.dtype, tensor.desc.sizes));
  const int64_t offset = found.desc.offset;
  found.desc = row_major(tensor.desc.dtype, {tensor.desc.numel() / columns, columns});
  found.desc.offset = offset;
  return found;
}

// A column as wide as rows are.
TensorRef repeated(TensorRef column, int64_t columns) {
  column.desc.sizes[1] = columns;
  column.desc.strides = {1, 0};
  return column;
}

int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

bool import_layer_norm_backward(CallReader& call) {
  // grad_output, input, normalised sizes, mean, 1 / deviation, weight, bias, which gradients
  const auto gradient = call.tensor(0);
  const auto input = call.tensor(1);
  const auto mean = call.tensor(3);
  const auto inverse = call.tensor(4);
  const auto weight = call.tensor(5);
  if (!gradient || !input || !mean || !inverse || (call.has(5) && !weight)) return false;
  if (input->desc.numel() == 0 || !call.writes_only_results()) return false;
  const auto result = call.result(0);
  if (result && !result->is_row_major()) return false;
  for (uint32_t i : {1, 2})
    if (const auto desc = call.result(i); desc && !desc->is_row_major()) return false;

  const int64_t columns = product(call.integers(2));
  const TensorRef dy = as_rows(call, *gradient, columns);
  const TensorRef x = as_rows(call, *input, columns);
  const TensorRef means = as_rows(call, *mean, 1);
  const TensorRef inverses = as_rows(call, *inverse, 1);
  if (result && call.is_used(0)) {
    std::vector<TensorRef> inputs = {dy, x, means, inverses};
    if (weight) {
      inputs.push_back(as_rows(call, *weight, columns));
      inputs.back().desc = row_major(weight->desc.dtype, {columns});
      inputs.back().desc.offset = weight->desc.offset;
    }
    TensorDesc rows = row_major(result->dtype, {x.desc.sizes[0], columns});
    rows.offset = result->offset;
    call.emit_into(LayerNormGradient{.dims = 1, .weight = weight.has_value()}, inputs,
                   {call.make_result(0, rows)});
  }

  // Sums of dy * (x - mean) / deviation and of dy: the gradients of weight and bias.
  Chain products{.inputs = 4, .steps = {}, .outputs = {}};
  products.steps = {chain_step(ChainOp::kSub, 1, 2), chain_step(ChainOp::kMul, 4, 3),
                    chain_step(ChainOp::kMul, 5, 0)};
  std::vector<int> sums;
  std::vector<TensorRef> vectors;
  for (uint32_t i : {1, 2}) {
    if (!call.is_used(i)) continue;
    sums.push_back(i == 1 ? 6 : 0);
    TensorDesc vector = row_major(x.desc.dtype, {columns});
    vector.offset = call.result(i)->offset;
    vectors.push_back(call.make_result(i, vector));
  }
  if (!sums.empty())
    emit_sums(call, products, {dy, x, repeated(means, columns), repeated(inverses, columns)}, sums,
              vectors);
  return true;
}

bool import_embedding_backward(CallReader& call) {
  // grad_output, indices, rows of the table, padding index, whether to divide by counts
  auto gradient = call.tensor(0);
  const auto indices = call.tensor_of_any_type(1);
  const auto result = call.result();
  if (!gradient || !indices || !result || call.flag(4) || !result->is_row_major()) return false;
  if (indices->desc.dtype.name != "int64" && indices->desc.dtype.name != "int32") return false;
  if (gradient->desc.strides.back() != 1)
    gradient = call.emit(Copy{}, {*gradient}, row_major(result->dtype, gradient->desc.sizes));
  call.emit_result(EmbeddingGradient{.padding_index = call.integer(3)}, {*gradient, *indices},
                   *result);
  return true;
}

// What a slice was taken from gets its gradient, and zeros around it.
bool emit_slice_gradient(CallReader& call, TensorRef gradient, int64_t dim, int64_t begin) {
  const auto result = call.result();
  if (!result || result->numel() == 0) return false;
  Pad pad;
  pad.begin.assign(result->sizes.size(), 0);
  pad.begin[static_cast<size_t>(dim)] = begin;
  call.emit_result(pad, {gradient}, *result);
  return true;
}

int64_t from_the_front(int64_t index, int64_t size) {
  return index < 0 ? index + size : index;
}

bool import_select_backward(CallReader& call) {  // grad_output, sizes, dim, index
  auto gradient = call.tensor(0);
  const Sizes sizes = call.integers(1);
  if (!gradient || sizes.empty()) return false;
  const int64_t dim = from_the_front(call.integer(2), static_cast<int64_t>(sizes.size()));
  gradient->desc = with_dim(gradient->desc, static_cast<size_t>(dim));
  return emit_slice_gradient(call, *gradient, dim,
                             from_the_front(call.integer(3), sizes[static_cast<size_t>(dim)]));
}

bool import_slice_backward(CallReader& call) {  // grad_output, sizes, dim, begin, end, step
  const auto gradient = call.tensor(0);
  const Sizes sizes = call.integers(1);
  if (!gradient || sizes.empty() || call.integer(5) != 1) return false;
  const int64_t dim = from_the_front(call.integer(2), static_cast<int64_t>(sizes.size()));
  const int64_t size = sizes[static_cast<size_t>(dim)];
  const int64_t begin = std::clamp<int64_t>(from_the_front(call.integer(3), size), 0, size);
  return emit_slice_gradient(call, *gradient, dim, begin);
}

bool import_safe_softmax(CallReader& call) {  // input, dim, type
  const auto input = call.tensor(0);
  const auto result = call.result();
  if (!input || !result || input->desc.sizes.empty()) return false;
  if (result->dtype.code != input->desc.dtype.code) return false;
  const int64_t dim =
      from_the_front(call.integer(1), static_cast<int64_t>(input->desc.sizes.size()));
  call.emit_result(Softmax{.dim = dim, .log = false, .safe = true}, {*input}, *result);
  return true;
}

}  // namespace

bool import_layer_norm_with_statistics(CallReader& call, LayerNorm norm,
                                       const std::vector<TensorRef>& inputs) {
  std::vector<TensorRef> results;
  for (uint32_t i : {0, 1, 2}) {
    const auto desc = call.result(i);
    if (!desc || !desc->is_row_major() || desc->dtype.code != inputs[0].desc.dtype.code)
      return false;
  }
  if (inputs[0].desc.numel() == 0 || !call.writes_only_results()) return false;
  for (uint32_t i : {0, 1, 2}) results.push_back(call.make_result(i, *call.result(i)));
  norm.statistics = true;
  call.emit_into(norm, inputs, results);
  return true;
}

const ImportTable& transformer_imports() {
  static const ImportTable table = {
      {"aten::native_layer_norm_backward", import_layer_norm_backward},
      {"aten::embedding_dense_backward", import_embedding_backward},
      {"aten::select_backward", import_select_backward},
      {"aten::slice_backward", import_slice_backward},
      {"aten::_safe_softmax", import_safe_softmax},
  };
  return table;
}

}  // namespace nimble
