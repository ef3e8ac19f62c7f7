// Long because it is a table: one short function per kind of framework op.
#include <algorithm>
#include <utility>

#include "nimble/passes/chain_steps.h"
#include "nimble/torch/import_table.h"

namespace nimble {
namespace {

// Sums over rows in so many blocks, which can be made at the same time.
constexpr int64_t kMostBlocks = 8;
constexpr int64_t kFewestBlockElements = 1 << 14;

int64_t blocks_for(const TensorDesc& desc) {
  const int64_t rows = desc.sizes[0] * (desc.sizes.size() == 4 ? desc.sizes[2] : 1);
  return std::clamp<int64_t>(desc.numel() / kFewestBlockElements, 1, std::min(rows, kMostBlocks));
}

bool is_image(const std::optional<TensorRef>& tensor) {
  return tensor && tensor->desc.sizes.size() == 4 && tensor->desc.numel() > 0;
}

TensorRef seen_along_channels(const TensorRef& vector, const TensorRef& image) {
  return {vector.memory, along_channels(vector.desc, image.desc.sizes)};
}

// A vector that a result of the call is, if somebody asked for it.
TensorRef make_vector(CallReader& call, uint32_t result, const TensorDesc& like) {
  const auto desc = call.result(result);
  return desc ? call.make_result(result, *desc) : call.make_temporary(like);
}

// Convolutions.

bool import_convolution_backward(CallReader& call) {
  // grad_output, input, weight, bias sizes, stride, padding, dilation, transposed, output padding,
  // groups, which gradients
  const auto gradient = call.tensor(0);
  const auto input = call.tensor(1);
  const auto weight = call.tensor(2);
  if (!is_image(gradient) || !is_image(input) || !is_image(weight)) return false;
  const auto stride = pair_of(call.integers(4));
  const auto padding = pair_of(call.integers(5));
  const auto dilation = pair_of(call.integers(6));
  if (call.flag(7) || !stride || !padding || !dilation || !call.writes_only_results()) return false;
  const int64_t groups = call.integer(9);
  if (const auto desc = call.result(0); desc && call.is_used(0))
    call.emit_into(
        ConvolutionBackwardInput{
            .stride = *stride, .padding = *padding, .dilation = *dilation, .groups = groups},
        {*gradient, *weight}, {call.make_result(0, *desc)});
  const auto weight_desc = call.result(1);
  const auto bias_desc = call.result(2);
  if (weight_desc) {
    std::vector<TensorRef> results = {call.make_result(1, *weight_desc)};
    if (bias_desc) results.push_back(call.make_result(2, *bias_desc));
    call.emit_into(ConvolutionBackwardWeight{.stride = *stride,
                                             .padding = *padding,
                                             .dilation = *dilation,
                                             .groups = groups,
                                             .bias = bias_desc.has_value()},
                   {*input, *gradient}, results);
  } else if (bias_desc) {
    emit_sums(call, Chain{.inputs = 1, .steps = {}, .outputs = {}}, {*gradient}, {0},
              {call.make_result(2, *bias_desc)});
  }
  return true;
}

// Batch norm.

bool import_batch_norm_backward(CallReader& call) {
  // grad_output, input, weight, running mean, running variance, saved mean, saved 1 / deviation,
  // training, epsilon, which gradients
  const auto gradient = call.tensor(0);
  const auto input = call.tensor(1);
  const auto weight = call.tensor(2);
  const auto mean = call.tensor(5);
  const auto inverse = call.tensor(6);
  if (!is_image(gradient) || !is_image(input) || !mean || !inverse || (call.has(2) && !weight))
    return false;
  if (!call.flag(7) || !call.writes_only_results()) return false;
  const TensorDesc vector = row_major(input->desc.dtype, {input->desc.sizes[1]});

  // Sums of dy and of dy * (x - mean). The first is the gradient of the bias; the second times
  // inverse that of the weight.
  const TensorRef weight_gradient = make_vector(call, 1, vector);
  const TensorRef sum = make_vector(call, 2, vector);
  const TensorRef sum_of_products = call.make_temporary(vector);
  Chain products{.inputs = 3, .steps = {}, .outputs = {}};
  products.steps = {chain_step(ChainOp::kSub, 1, 2), chain_step(ChainOp::kMul, 3, 0)};
  emit_sums(call, products, {*gradient, *input, seen_along_channels(*mean, *input)}, {0, 4},
            {sum, sum_of_products});
  call.emit_into(Chain{.inputs = 2, .steps = {chain_step(ChainOp::kMul, 0, 1)}, .outputs = {2}},
                 {sum_of_products, *inverse}, {weight_gradient});
  const auto result = call.result(0);
  if (!result || !call.is_used(0)) return true;

  // dx = ((x - mean) * -k + dy) * a + c, where k = weight_gradient * inverse / M,
  // a = weight * inverse and c = -sum / M * a.
  const auto elements =
      static_cast<float>(input->desc.numel() / std::max<int64_t>(input->desc.sizes[1], 1));
  const TensorRef minus_k = call.make_temporary(vector);
  const TensorRef a = call.make_temporary(vector);
  const TensorRef c = call.make_temporary(vector);
  Chain factors{.inputs = weight ? 4 : 3, .steps = {}, .outputs = {}};
  const int first = factors.inputs;  // register of the first step
  factors.steps = {
      chain_step(ChainOp::kMul, 0, 2), scalar_step(ChainOp::kMulScalar, first, -1 / elements),
      weight ? chain_step(ChainOp::kMul, 0, 3) : scalar_step(ChainOp::kMulScalar, 0, 1),
      scalar_step(ChainOp::kMulScalar, 1, -1 / elements),
      chain_step(ChainOp::kMul, first + 3, first + 2)};
  factors.outputs = {first + 1, first + 2, first + 4};
  std::vector<TensorRef> factor_inputs = {*inverse, sum, weight_gradient};
  if (weight) factor_inputs.push_back(*weight);
  call.emit_into(factors, factor_inputs, {minus_k, a, c});

  Chain chain{.inputs = 6, .steps = {}, .outputs = {8}};
  chain.steps = {chain_step(ChainOp::kSub, 1, 2), chain_step(ChainOp::kMulAdd, 6, 3, 0),
                 chain_step(ChainOp::kMulAdd, 7, 4, 5)};
  call.emit_into(
      chain,
      {*gradient, *input, seen_along_channels(*mean, *input), seen_along_channels(minus_k, *input),
       seen_along_channels(a, *input), seen_along_channels(c, *input)},
      {call.make_result(0, *result)});
  return true;
}

// Gradients of activations: of the result, and what they are computed from.

bool import_gradient(CallReader& call, const Activation& activation, size_t of = 1) {
  const auto gradient = call.tensor(0);
  const auto from = call.tensor(of);
  return gradient && from &&
         emit_chain(call, {*gradient, *from}, {gradient_step(activation, 0, 1)});
}

template <ActivationKind kKind>
bool import_plain_gradient(CallReader& call) {
  return import_gradient(call, {kKind, 0, 0});
}

bool import_threshold_backward(CallReader& call) {
  const auto threshold = call.number(2);
  return threshold &&
         import_gradient(call, {ActivationKind::kRelu, static_cast<float>(*threshold), 0});
}

bool import_hardtanh_backward(CallReader& call) {
  const auto low = call.number(2);
  const auto high = call.number(3);
  return low && high &&
         import_gradient(
             call, {ActivationKind::kClamp, static_cast<float>(*low), static_cast<float>(*high)});
}

bool import_leaky_relu_backward(CallReader& call) {
  const auto slope = call.number(2);
  return slope && !call.flag(3) &&
         import_gradient(call, {ActivationKind::kLeakyRelu, static_cast<float>(*slope), 0});
}

bool import_gelu_backward(CallReader& call) {
  return import_gradient(
      call, {call.text(2) == "tanh" ? ActivationKind::kGeluTanh : ActivationKind::kGeluErf, 0, 0});
}

// Pooling.

bool import_max_pool_backward(CallReader& call) {
  // grad_output, input, kernel, stride, padding, dilation, ceil mode, indices
  const auto gradient = call.tensor(0);
  auto pool = pool_of(call, 2);
  const auto dilation = pair_of(call.integers(5));
  const auto indices = call.tensor_of_any_type(7);
  const auto result = call.result();
  if (!is_image(gradient) || !pool || !dilation || !indices || !result) return false;
  pool->dilation = *dilation;
  call.emit_result(PoolGradient{*pool}, {*gradient, *indices}, *result);
  return true;
}

bool import_average_pool_backward(CallReader& call) {
  // grad_output, input, kernel, stride, padding, ceil mode, count padding, divisor
  const auto gradient = call.tensor(0);
  auto pool = pool_of(call, 2);
  const auto result = call.result();
  if (!is_image(gradient) || !pool || !result) return false;
  pool->kind = Pool::Kind::kAverage;
  pool->count_include_pad = call.flag(6);
  if (call.has(7)) pool->divisor = call.integer(7);
  call.emit_result(PoolGradient{*pool}, {*gradient}, *result);
  return true;
}

bool import_adaptive_average_pool_backward(CallReader& call) {
  const auto gradient = call.tensor(0);
  const auto result = call.result();
  if (!is_image(gradient) || !result) return false;
  call.emit_result(AdaptivePoolGradient{}, {*gradient}, *result);
  return true;
}

// Losses.

bool import_softmax_backward_with(CallReader& call, bool log) {  // grad_output, output, dim
  const auto gradient = call.tensor(0);
  const auto output = call.tensor(1);
  const auto result = call.result();
  if (!gradient || !output || !result || result->sizes.empty()) return false;
  if (gradient->desc.strides != output->desc.strides || result->strides != output->desc.strides)
    return false;
  int64_t dim = call.integer(2);
  if (dim < 0) dim += static_cast<int64_t>(result->sizes.size());
  call.emit_result(SoftmaxGradient{dim, log}, {*gradient, *output}, *result);
  return true;
}
bool import_softmax_backward(CallReader& call) {
  return import_softmax_backward_with(call, false);
}
bool import_log_softmax_backward(CallReader& call) {
  return import_softmax_backward_with(call, true);
}

std::optional<NllLoss> loss_of(CallReader& call, size_t weight, size_t reduction) {
  if (call.has(weight) && !call.tensor(weight)) return std::nullopt;
  NllLoss loss;
  loss.weight = call.has(weight);
  loss.reduction = static_cast<LossReduction>(call.integer(reduction));
  loss.ignore_index = call.integer(reduction + 1);
  return loss;
}

bool import_nll_loss(CallReader& call) {  // input, target, weight, reduction, ignored index
  const auto input = call.tensor(0);
  const auto target = call.tensor_of_any_type(1);
  const auto result = call.result(0);
  const auto total = call.result(1);
  const auto loss = loss_of(call, 2, 3);
  if (!input || !target || !result || !total || !loss || input->desc.sizes.size() != 2)
    return false;
  if (target->desc.sizes.size() != 1 || !call.writes_only_results()) return false;
  std::vector<TensorRef> inputs = {*input, *target};
  if (loss->weight) inputs.push_back(*call.tensor(2));
  call.emit_into(*loss, inputs, {call.make_result(0, *result), call.make_result(1, *total)});
  return true;
}

bool import_nll_loss_backward(CallReader& call) {
  // grad_output, input, target, weight, reduction, ignored index, total weight
  const auto gradient = call.tensor(0);
  const auto target = call.tensor_of_any_type(2);
  const auto total = call.tensor(6);
  const auto result = call.result();
  const auto loss = loss_of(call, 3, 4);
  if (!gradient || !target || !total || !result || !loss || result->sizes.size() != 2) return false;
  if (target->desc.sizes.size() != 1) return false;
  std::vector<TensorRef> inputs = {*gradient, *target};
  if (loss->weight) inputs.push_back(*call.tensor(3));
  inputs.push_back(*total);
  call.emit_result(NllLossGradient{*loss}, inputs, *result);
  return true;
}

}  // namespace

void emit_sums(CallReader& call, const Chain& chain, const std::vector<TensorRef>& inputs,
               const std::vector<int>& sums, const std::vector<TensorRef>& vectors) {
  const TensorDesc& image = inputs[0].desc;
  const size_t channel_dim = image.sizes.size() == 4 ? 1 : image.sizes.size() - 1;
  const int64_t channels = image.sizes[channel_dim];
  const int64_t blocks = blocks_for(image);
  std::vector<TensorRef> rows;
  for (const TensorRef& vector : vectors) {
    if (blocks > 1)
      rows.push_back(call.make_temporary(row_major(image.dtype, {blocks, channels})));
    else
      rows.push_back({vector.memory, with_dim(vector.desc, 0)});
  }
  call.emit_into(ChainSums{chain, sums}, inputs, rows);
  if (blocks == 1) return;
  for (size_t i = 0; i < rows.size(); ++i)
    call.emit_into(Reduce{Reduce::Kind::kSum, {0}}, {rows[i]},
                   {{vectors[i].memory, with_dim(vectors[i].desc, 0)}});
}

const ImportTable& training_imports() {
  static const ImportTable table = {
      {"aten::convolution_backward", import_convolution_backward},
      {"aten::native_batch_norm_backward", import_batch_norm_backward},
      {"aten::threshold_backward", import_threshold_backward},
      {"aten::hardtanh_backward", import_hardtanh_backward},
      {"aten::leaky_relu_backward", import_leaky_relu_backward},
      {"aten::hardswish_backward", import_plain_gradient<ActivationKind::kHardSwish>},
      {"aten::hardsigmoid_backward", import_plain_gradient<ActivationKind::kHardSigmoid>},
      {"aten::silu_backward", import_plain_gradient<ActivationKind::kSilu>},
      {"aten::sigmoid_backward", import_plain_gradient<ActivationKind::kSigmoid>},
      {"aten::tanh_backward", import_plain_gradient<ActivationKind::kTanh>},
      {"aten::gelu_backward", import_gelu_backward},
      {"aten::max_pool2d_with_indices_backward", import_max_pool_backward},
      {"aten::avg_pool2d_backward", import_average_pool_backward},
      {"aten::_adaptive_avg_pool2d_backward", import_adaptive_average_pool_backward},
      {"aten::_softmax_backward_data", import_softmax_backward},
      {"aten::_log_softmax_backward_data", import_log_softmax_backward},
      {"aten::nll_loss_forward", import_nll_loss},
      {"aten::nll_loss_backward", import_nll_loss_backward},
  };
  return table;
}

// Statistics first; then result = x * scale + shift with scale = weight / deviation and
// shift = bias - mean * scale.
bool import_batch_norm_in_training(CallReader& call) {
  // input, weight, bias, running mean, running variance, training, momentum, epsilon
  const auto input = call.tensor(0);
  const auto weight = call.tensor(1);
  const auto bias = call.tensor(2);
  if (!is_image(input) || (call.has(1) && !weight) || (call.has(2) && !bias)) return false;
  const auto result = call.result(0);
  const auto mean_desc = call.result(1);
  const auto inverse_desc = call.result(2);
  if (!result || !mean_desc || !inverse_desc || !call.writes_only_results({3, 4})) return false;
  const bool running = call.has(3);
  if (running && (!call.tensor(3) || !call.tensor(4))) return false;
  const TensorDesc& image = input->desc;
  const int64_t channels = image.sizes[1];
  const int64_t blocks = blocks_for(image);

  const TensorDesc of_blocks = row_major(image.dtype, {blocks, channels});
  const TensorRef means = call.make_temporary(of_blocks);
  const TensorRef squares = call.make_temporary(of_blocks);
  call.emit_into(ChannelMoments{}, {*input}, {means, squares});

  const TensorRef mean = call.make_result(1, *mean_desc);
  const TensorRef inverse = call.make_result(2, *inverse_desc);
  BatchStatistics statistics;
  statistics.rows = image.sizes[0] * image.sizes[2];
  statistics.row_elements = image.sizes[3];
  statistics.epsilon = *call.number(7);
  statistics.momentum = *call.number(6);
  statistics.running = running;
  std::vector<TensorRef> updated;
  if (running) updated = {call.updated(3), call.updated(4)};
  call.emit_into(statistics, {means, squares}, {mean, inverse}, updated);

  const TensorDesc vector = row_major(image.dtype, {channels});
  const TensorRef scale = call.make_temporary(vector);
  const TensorRef shift = call.make_temporary(vector);
  Chain factors{.inputs = 2, .steps = {}, .outputs = {}};
  std::vector<TensorRef> inputs = {mean, inverse};
  for (const auto& each : {weight, bias}) {
    if (!each) continue;
    inputs.push_back(*each);
    ++factors.inputs;
  }
  int last = factors.inputs;  // register of the next step
  factors.steps.push_back(weight ? chain_step(ChainOp::kMul, 1, 2)
                                 : scalar_step(ChainOp::kMulScalar, 1, 1));
  factors.outputs.push_back(last++);
  factors.steps.push_back(chain_step(ChainOp::kMul, 0, factors.outputs[0]));
  factors.steps.push_back(bias ? chain_step(ChainOp::kSub, factors.inputs - 1, last)
                               : chain_step(ChainOp::kNeg, last));
  factors.outputs.push_back(last + 1);
  call.emit_into(factors, inputs, {scale, shift});

  Chain chain{.inputs = 3, .steps = {chain_step(ChainOp::kMulAdd, 0, 1, 2)}, .outputs = {3}};
  call.emit_into(chain,
                 {*input, seen_along_channels(scale, *input), seen_along_channels(shift, *input)},
                 {call.make_result(0, *result)});
  return true;
}

bool import_max_pool_with_indices(CallReader& call, const Pool& pool) {
  const auto input = call.tensor(0);
  const auto result = call.result(0);
  const auto indices = call.result(1);
  if (!is_image(input) || !result || !indices || !call.writes_only_results()) return false;
  call.emit_into(MaxPoolIndices{pool}, {*input},
                 {call.make_result(0, *result), call.make_result(1, *indices)});
  return true;
}

}  // namespace nimble
