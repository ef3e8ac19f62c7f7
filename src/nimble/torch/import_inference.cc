// Long because it is a table: one short function per kind of framework op.
#include <algorithm>
#include <cmath>

#include "nimble/passes/chain_steps.h"
#include "nimble/torch/import_table.h"

namespace nimble {
namespace {

bool import_convolution(CallReader& call) {
  auto input = call.tensor(0);
  auto weight = call.tensor(1);
  auto result = call.result();
  if (!input || !weight || !result || call.flag(6)) return false;
  Sizes stride = call.integers(3);
  Sizes padding = call.integers(4);
  Sizes dilation = call.integers(5);
  if (result->sizes.size() == 3 && weight->desc.sizes.size() == 3) {  // a row of pixels
    input->desc = with_dim(input->desc, 2);
    weight->desc = with_dim(weight->desc, 2);
    *result = with_dim(*result, 2);
    stride = {1, stride.at(0)};
    padding = {0, padding.at(0)};
    dilation = {1, dilation.at(0)};
  }
  if (result->sizes.size() != 4 || weight->desc.sizes.size() != 4) return false;
  const auto strides = pair_of(stride);
  const auto paddings = pair_of(padding);
  const auto dilations = pair_of(dilation);
  if (!strides || !paddings || !dilations) return false;
  Convolution conv;
  conv.stride = *strides;
  conv.padding = *paddings;
  conv.dilation = *dilations;
  conv.groups = call.integer(8);
  conv.constant_weight = call.is_constant(*weight);
  std::vector<TensorRef> inputs = {*input, *weight};
  if (call.has(2)) {
    const auto bias = call.tensor(2);
    if (!bias) return false;
    conv.bias = true;
    conv.constant_weight &= call.is_constant(*bias);
    inputs.push_back(*bias);
  }
  call.emit_result(conv, inputs, *result);
  return true;
}

// scale = gamma / sqrt(variance + epsilon), shift = beta - mean * scale, result = x * scale +
// shift.
bool import_batch_norm_with(CallReader& call, size_t epsilon_position) {
  const auto input = call.tensor(0);
  const auto mean = call.tensor(3);
  const auto variance = call.tensor(4);
  const auto result = call.result();
  if (!input || !mean || !variance || !result || input->desc.sizes.size() < 2) return false;
  if (!call.is_constant(*mean) || !call.is_constant(*variance)) return false;
  const auto gamma = call.tensor(1);
  const auto beta = call.tensor(2);
  if ((call.has(1) && (!gamma || !call.is_constant(*gamma))) ||
      (call.has(2) && (!beta || !call.is_constant(*beta))))
    return false;
  const TensorDesc vector = row_major(input->desc.dtype, {input->desc.sizes[1]});

  const auto epsilon = static_cast<float>(*call.number(epsilon_position));
  Chain scaling{.inputs = gamma ? 2 : 1, .steps = {}, .outputs = {}};
  std::vector<TensorRef> scaling_inputs = {*variance};
  if (gamma) scaling_inputs.push_back(*gamma);
  int next = scaling.inputs;
  scaling.steps.push_back({.op = ChainOp::kAddScalar, .x = 0, .value = epsilon});
  scaling.steps.push_back({.op = ChainOp::kRsqrt, .x = next++});
  if (gamma) scaling.steps.push_back({.op = ChainOp::kMul, .x = next++, .y = 1});
  scaling.outputs = {next};
  const TensorRef scale = call.emit(scaling, scaling_inputs, vector);

  Chain shifting{.inputs = beta ? 3 : 2, .steps = {}, .outputs = {}};
  std::vector<TensorRef> shifting_inputs = {*mean, scale};
  if (beta) shifting_inputs.push_back(*beta);
  next = shifting.inputs;
  shifting.steps.push_back({.op = ChainOp::kMul, .x = 0, .y = 1});
  if (beta)
    shifting.steps.push_back({.op = ChainOp::kSub, .x = 2, .y = next++});
  else
    shifting.steps.push_back({.op = ChainOp::kNeg, .x = next++});
  shifting.outputs = {next};
  const TensorRef shift = call.emit(shifting, shifting_inputs, vector);

  Chain chain{.inputs = 3, .steps = {}, .outputs = {3}};
  chain.steps.push_back({.op = ChainOp::kMulAdd, .x = 0, .y = 1, .z = 2});
  const Sizes& sizes = input->desc.sizes;
  call.emit_result(chain,
                   {*input,
                    {scale.memory, along_channels(scale.desc, sizes)},
                    {shift.memory, along_channels(shift.desc, sizes)}},
                   *result);
  return true;
}

bool import_batch_norm(CallReader& call) {  // …, training, momentum, epsilon
  return call.flag(5) ? import_batch_norm_in_training(call) : import_batch_norm_with(call, 7);
}
// As above, and one more result that only training uses.
bool import_cudnn_batch_norm(CallReader& call) {
  return !call.flag(5) && import_batch_norm_with(call, 7);
}
bool import_batch_norm_no_training(CallReader& call) {  // …, momentum, epsilon
  return import_batch_norm_with(call, 6);
}

// Activations.

bool import_activation(CallReader& call, Activation activation) {
  const auto x = call.tensor(0);
  return x &&
         emit_chain(call, {*x}, {{.op = ChainOp::kActivation, .x = 0, .activation = activation}});
}

template <ActivationKind kKind>
bool import_plain_activation(CallReader& call) {
  return import_activation(call, {kKind, 0, 0});
}

bool import_clamp(CallReader& call) {
  Activation clamp{ActivationKind::kClamp, -INFINITY, INFINITY};
  for (size_t i : {1, 2}) {
    if (!call.has(i)) continue;
    const auto bound = call.number(i);
    if (!bound || std::isnan(*bound)) return false;
    (i == 1 ? clamp.a : clamp.b) = static_cast<float>(*bound);
  }
  return import_activation(call, clamp);
}

bool import_clamp_min(CallReader& call) {
  const auto bound = call.number(1);
  return bound && !std::isnan(*bound) &&
         import_activation(call, {ActivationKind::kClamp, static_cast<float>(*bound), INFINITY});
}

bool import_leaky_relu(CallReader& call) {
  return import_activation(
      call, {ActivationKind::kLeakyRelu, static_cast<float>(call.number(1).value_or(0.01)), 0});
}

bool import_elu(CallReader& call) {
  if (call.number(2).value_or(1) != 1 || call.number(3).value_or(1) != 1) return false;
  return import_activation(
      call, {ActivationKind::kElu, static_cast<float>(call.number(1).value_or(1)), 0});
}

bool import_gelu(CallReader& call) {
  return import_activation(
      call, {call.text(1) == "tanh" ? ActivationKind::kGeluTanh : ActivationKind::kGeluErf, 0, 0});
}

// Pooling, reductions, resizing.

bool emit_pool(CallReader& call, const OpAttributes& attributes) {
  const auto input = call.tensor(0);
  const auto result = call.result();
  if (!input || !result || result->sizes.size() != 4) return false;
  call.emit_result(attributes, {*input}, *result);
  return true;
}

bool import_max_pool(CallReader& call) {
  auto pool = pool_of(call);
  const auto dilation = pair_of(call.integers(4));
  if (!pool || !dilation) return false;
  pool->dilation = *dilation;
  return call.is_used(1) ? import_max_pool_with_indices(call, *pool) : emit_pool(call, *pool);
}

bool import_average_pool(CallReader& call) {
  auto pool = pool_of(call);
  if (!pool) return false;
  pool->kind = Pool::Kind::kAverage;
  pool->count_include_pad = call.flag(5);
  if (call.has(6)) pool->divisor = call.integer(6);
  return emit_pool(call, *pool);
}

bool import_adaptive_average_pool(CallReader& call) {
  return emit_pool(call, AdaptivePool{Pool::Kind::kAverage});
}

bool import_nearest(CallReader& call) {
  Resize resize{Resize::Kind::kNearest, false, {0, 0}};
  for (size_t i : {0, 1})
    if (call.has(2 + i)) resize.scale[i] = 1 / *call.number(2 + i);
  return emit_pool(call, resize);
}

bool import_bilinear(CallReader& call) {
  Resize resize{Resize::Kind::kBilinear, call.flag(2), {0, 0}};
  for (size_t i : {0, 1})
    if (call.has(3 + i)) resize.scale[i] = 1 / *call.number(3 + i);
  return emit_pool(call, resize);
}

bool emit_reduce(CallReader& call, Reduce::Kind kind, Sizes dims, bool keep) {
  const auto input = call.tensor(0);
  auto result = call.result();
  if (!input || !result || result->dtype.code != input->desc.dtype.code) return false;
  if (input->desc.sizes.empty()) return false;
  const auto rank = static_cast<int64_t>(input->desc.sizes.size());
  for (int64_t& dim : dims)
    if (dim < 0) dim += rank;
  if (dims.empty())
    for (int64_t d = 0; d < rank; ++d) dims.push_back(d);
  std::sort(dims.begin(), dims.end());
  if (!keep)
    for (int64_t dim : dims) *result = with_dim(*result, static_cast<size_t>(dim));
  call.emit_result(Reduce{kind, dims}, {*input}, *result);
  return true;
}

template <Reduce::Kind kKind>
bool import_reduce_dims(CallReader& call) {
  return emit_reduce(call, kKind, call.integers(1), call.flag(2));
}
template <Reduce::Kind kKind>
bool import_reduce_all(CallReader& call) {
  return emit_reduce(call, kKind, {}, false);
}

bool import_softmax_with(CallReader& call, bool log) {
  const auto input = call.tensor(0);
  const auto result = call.result();
  if (!input || !result || input->desc.sizes.empty()) return false;
  int64_t dim = call.integer(1);
  if (dim < 0) dim += static_cast<int64_t>(input->desc.sizes.size());
  call.emit_result(Softmax{.dim = dim, .log = log}, {*input}, *result);
  return true;
}
bool import_softmax(CallReader& call) {
  return import_softmax_with(call, false);
}
bool import_log_softmax(CallReader& call) {
  return import_softmax_with(call, true);
}

// Norms, attention, tables.

bool import_layer_norm(CallReader& call) {
  const auto input = call.tensor(0);
  if (!input) return false;
  LayerNorm norm;
  norm.dims = static_cast<int64_t>(call.integers(1).size());
  norm.epsilon = *call.number(4);
  std::vector<TensorRef> inputs = {*input};
  for (size_t i : {2, 3}) {
    if (!call.has(i)) continue;
    const auto tensor = call.tensor(i);
    if (!tensor) return false;
    (i == 2 ? norm.weight : norm.bias) = true;
    inputs.push_back(*tensor);
  }
  if (call.is_used(1) || call.is_used(2))
    return import_layer_norm_with_statistics(call, norm, inputs);
  const auto result = call.result();
  if (!result) return false;
  call.emit_result(norm, inputs, *result);
  return true;
}

bool import_group_norm(CallReader& call) {
  const auto input = call.tensor(0);
  const auto result = call.result();
  if (!input || !result) return false;
  GroupNorm norm;
  norm.groups = call.integer(6);
  norm.epsilon = *call.number(7);
  std::vector<TensorRef> inputs = {*input};
  for (size_t i : {1, 2}) {
    if (!call.has(i)) continue;
    const auto tensor = call.tensor(i);
    if (!tensor) return false;
    (i == 1 ? norm.weight : norm.bias) = true;
    inputs.push_back(*tensor);
  }
  call.emit_result(norm, inputs, *result);
  return true;
}

bool import_embedding(CallReader& call) {
  const auto weight = call.tensor(0);
  const auto indices = call.tensor_of_any_type(1);
  const auto result = call.result();
  if (!weight || !indices || !result) return false;
  call.emit_result(Embedding{}, {*indices, *weight}, *result);
  return true;
}

bool import_attention(CallReader& call) {  // q, k, v, dropout, causal, mask, scale
  const auto q = call.tensor(0);
  const auto k = call.tensor(1);
  const auto v = call.tensor(2);
  const auto result = call.result();
  if (!q || !k || !v || !result || *call.number(3) != 0) return false;
  Attention attention;
  attention.causal = call.flag(4);
  attention.scale =
      call.has(6) ? *call.number(6) : 1 / std::sqrt(static_cast<double>(q->desc.sizes.back()));
  std::vector<TensorRef> inputs = {*q, *k, *v};
  if (call.has(5)) {
    auto mask = call.tensor(5);
    if (!mask) return false;
    const auto desc = expanded(
        mask->desc, {q->desc.sizes[0], q->desc.sizes[1], q->desc.sizes[2], k->desc.sizes[2]});
    if (!desc) return false;
    attention.mask = true;
    inputs.push_back({mask->memory, *desc});
  }
  call.emit_result(attention, inputs, *result);
  return true;
}

// Products of matrices.

bool emit_matmul(CallReader& call, const std::optional<TensorRef>& a,
                 const std::optional<TensorRef>& b, std::optional<TensorRef> bias, double alpha) {
  const auto result = call.result();
  if (!a || !b || !result) return false;
  MatMul matmul;
  matmul.constant_b = call.is_constant(*b);
  matmul.alpha = static_cast<float>(alpha);
  if (!bias) {
    call.emit_result(matmul, {*a, *b}, *result);
    return true;
  }
  const auto desc = expanded(bias->desc, result->sizes);
  if (!desc) return false;
  const TensorRef addend{bias->memory, *desc};
  if (matmul.constant_b && !call.is_constant(*bias)) {  // constants are packed together
    const TensorRef product = call.emit(matmul, {*a, *b}, row_major(result->dtype, result->sizes));
    Chain add{.inputs = 2, .steps = {{.op = ChainOp::kAdd, .x = 0, .y = 1}}, .outputs = {2}};
    call.emit_result(add, {product, addend}, *result);
    return true;
  }
  matmul.bias = true;
  call.emit_result(matmul, {*a, *b, addend}, *result);
  return true;
}

bool import_matmul(CallReader& call) {
  return emit_matmul(call, call.tensor(0), call.tensor(1), std::nullopt, 1);
}

bool import_addmm(CallReader& call) {  // bias, a, b, beta, alpha
  const auto bias = call.tensor(0);
  const double beta = call.number(3).value_or(1);
  if (!bias || beta != 1) return false;
  return emit_matmul(call, call.tensor(1), call.tensor(2), bias, call.number(4).value_or(1));
}

// Moving elements.

bool import_concatenation(CallReader& call) {
  const std::vector<TensorRef> inputs = call.tensors(0);
  const auto result = call.result();
  if (inputs.empty() || !result) return false;
  int64_t dim = call.integer(1);
  if (dim < 0) dim += static_cast<int64_t>(result->sizes.size());
  int64_t sum = 0;
  for (const TensorRef& input : inputs) {
    if (input.desc.sizes.size() != result->sizes.size()) return false;  // an empty [0]
    if (input.desc.dtype.code != result->dtype.code) return false;
    sum += input.desc.sizes[static_cast<size_t>(dim)];
  }
  if (sum != result->sizes[static_cast<size_t>(dim)]) return false;
  call.emit_result(Concatenation{dim}, inputs, *result);
  return true;
}

bool import_pad(CallReader& call) {
  const auto input = call.tensor(0);
  const auto result = call.result();
  const auto value = call.number(2);
  if (!input || !result || !value) return false;
  const Sizes padding = call.integers(1);
  Pad pad;
  pad.value = static_cast<float>(*value);
  pad.begin.assign(input->desc.sizes.size(), 0);
  for (size_t i = 0; 2 * i < padding.size(); ++i)
    pad.begin[pad.begin.size() - 1 - i] = padding[2 * i];
  call.emit_result(pad, {*input}, *result);
  return true;
}

bool import_copy_from(CallReader& call, size_t position) {
  auto input = call.tensor_of_any_type(position);
  const auto result = call.result();
  if (!input || !result || !(input->desc.dtype == result->dtype)) return false;
  if (input->desc.conjugate != result->conjugate || input->desc.negative != result->negative)
    return false;
  const auto desc = expanded(input->desc, result->sizes);
  if (!desc) return false;
  call.emit_result(Copy{}, {{input->memory, *desc}}, *result);
  return true;
}
bool import_clone(CallReader& call) {
  return import_copy_from(call, 0);
}
bool import_copy(CallReader& call) {
  return import_copy_from(call, 1);
}

}  // namespace

const ImportTable& inference_imports() {
  static const ImportTable table = {
      {"aten::convolution", import_convolution},
      {"aten::native_batch_norm", import_batch_norm},
      {"aten::cudnn_batch_norm", import_cudnn_batch_norm},
      {"aten::_native_batch_norm_legit_no_training", import_batch_norm_no_training},
      {"aten::_batch_norm_no_update", import_batch_norm_no_training},
      {"aten::relu", import_plain_activation<ActivationKind::kRelu>},
      {"aten::relu_", import_plain_activation<ActivationKind::kRelu>},
      {"aten::hardtanh", import_clamp},
      {"aten::hardtanh_", import_clamp},
      {"aten::clamp", import_clamp},
      {"aten::clamp_", import_clamp},
      {"aten::clamp_min", import_clamp_min},
      {"aten::clamp_min_", import_clamp_min},
      {"aten::leaky_relu", import_leaky_relu},
      {"aten::leaky_relu_", import_leaky_relu},
      {"aten::elu", import_elu},
      {"aten::elu_", import_elu},
      {"aten::hardswish", import_plain_activation<ActivationKind::kHardSwish>},
      {"aten::hardswish_", import_plain_activation<ActivationKind::kHardSwish>},
      {"aten::hardsigmoid", import_plain_activation<ActivationKind::kHardSigmoid>},
      {"aten::hardsigmoid_", import_plain_activation<ActivationKind::kHardSigmoid>},
      {"aten::silu", import_plain_activation<ActivationKind::kSilu>},
      {"aten::silu_", import_plain_activation<ActivationKind::kSilu>},
      {"aten::sigmoid", import_plain_activation<ActivationKind::kSigmoid>},
      {"aten::sigmoid_", import_plain_activation<ActivationKind::kSigmoid>},
      {"aten::tanh", import_plain_activation<ActivationKind::kTanh>},
      {"aten::tanh_", import_plain_activation<ActivationKind::kTanh>},
      {"aten::gelu", import_gelu},
      {"aten::gelu_", import_gelu},
      {"aten::max_pool2d_with_indices", import_max_pool},
      {"aten::avg_pool2d", import_average_pool},
      {"aten::_adaptive_avg_pool2d", import_adaptive_average_pool},
      {"aten::upsample_nearest2d", import_nearest},
      {"aten::upsample_bilinear2d", import_bilinear},
      {"aten::mean.dim", import_reduce_dims<Reduce::Kind::kMean>},
      {"aten::sum.dim_IntList", import_reduce_dims<Reduce::Kind::kSum>},
      {"aten::amax", import_reduce_dims<Reduce::Kind::kMax>},
      {"aten::amin", import_reduce_dims<Reduce::Kind::kMin>},
      {"aten::mean", import_reduce_all<Reduce::Kind::kMean>},
      {"aten::sum", import_reduce_all<Reduce::Kind::kSum>},
      {"aten::_softmax", import_softmax},
      {"aten::_log_softmax", import_log_softmax},
      {"aten::native_layer_norm", import_layer_norm},
      {"aten::native_group_norm", import_group_norm},
      {"aten::embedding", import_embedding},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", import_attention},
      {"aten::mm", import_matmul},
      {"aten::bmm", import_matmul},
      {"aten::addmm", import_addmm},
      {"aten::cat", import_concatenation},
      {"aten::constant_pad_nd", import_pad},
      {"aten::clone", import_clone},
      {"aten::copy_", import_copy},
  };
  return table;
}

}  // namespace nimble
