#include "nimble/kernels/chain_reference.h"

#include <cmath>

#include "nimble/kernels/activation_reference.h"
#include "nimble/kernels/case_tensors.h"
#include "nimble/kernels/families.h"

namespace nimble {
namespace {

float power_of(float x, float exponent) {  // as the framework does for a number
  if (exponent == 0.5f) return std::sqrt(x);
  if (exponent == -0.5f) return 1 / std::sqrt(x);
  return std::pow(x, exponent);
}

float lerp(float start, float end, float weight) {
  return std::abs(weight) < 0.5f ? start + weight * (end - start)
                                 : end - (end - start) * (1 - weight);
}

float apply(const ChainStep& step, float x, float y, float z) {
  switch (step.op) {
    case ChainOp::kAdd:
      return x + y;
    case ChainOp::kSub:
      return x - y;
    case ChainOp::kMul:
      return x * y;
    case ChainOp::kDiv:
      return x / y;
    case ChainOp::kMaximum:
      return std::isnan(x) || x > y ? x : y;
    case ChainOp::kMinimum:
      return std::isnan(x) || x < y ? x : y;
    case ChainOp::kPow:
      return std::pow(x, y);
    case ChainOp::kLess:
      return x < y;
    case ChainOp::kLessEqual:
      return x <= y;
    case ChainOp::kEqual:
      return x == y;
    case ChainOp::kLerpScalar:
      return lerp(x, y, step.value);
    case ChainOp::kActivationGradient:
      return reference_activation_gradient(step.activation, x, y);
    case ChainOp::kMulAdd:
      return x * y + z;
    case ChainOp::kSelect:
      return x != 0 ? y : z;
    case ChainOp::kAddMul:
      return x + step.value * y * z;
    case ChainOp::kAddDiv:
      return x + step.value * y / z;
    case ChainOp::kLerp:
      return lerp(x, y, z);
    case ChainOp::kAddScalar:
      return x + step.value;
    case ChainOp::kMulScalar:
      return x * step.value;
    case ChainOp::kPowScalar:
      return power_of(x, step.value);
    case ChainOp::kRsubScalar:
      return step.value - x;
    case ChainOp::kRdivScalar:
      return step.value / x;
    case ChainOp::kLessScalar:
      return x < step.value;
    case ChainOp::kLessEqualScalar:
      return x <= step.value;
    case ChainOp::kGreaterScalar:
      return x > step.value;
    case ChainOp::kGreaterEqualScalar:
      return x >= step.value;
    case ChainOp::kEqualScalar:
      return x == step.value;
    case ChainOp::kNeg:
      return -x;
    case ChainOp::kAbs:
      return std::abs(x);
    case ChainOp::kSquare:
      return x * x;
    case ChainOp::kReciprocal:
      return 1 / x;
    case ChainOp::kExp:
      return std::exp(x);
    case ChainOp::kLog:
      return std::log(x);
    case ChainOp::kSqrt:
      return std::sqrt(x);
    case ChainOp::kRsqrt:
      return 1 / std::sqrt(x);
    case ChainOp::kErf:
      return std::erf(x);
    case ChainOp::kSin:
      return std::sin(x);
    case ChainOp::kCos:
      return std::cos(x);
    case ChainOp::kActivation:
      return reference_activation(step.activation, x);
  }
  return x;
}

}  // namespace

void evaluate_chain(const Chain& chain, std::vector<float>& registers) {
  const auto value_of = [&](int value) {
    return value < 0 ? 0.0f : registers[static_cast<size_t>(value)];
  };
  for (size_t i = 0; i < chain.steps.size(); ++i) {
    const ChainStep& step = chain.steps[i];
    registers[static_cast<size_t>(chain.inputs) + i] =
        apply(step, value_of(step.x), value_of(step.y), value_of(step.z));
  }
}

void chain_reference(const Chain& chain, std::span<const TensorDesc> operands, void* const* data) {
  const std::vector<int64_t>& sizes = operands[0].sizes;
  const size_t inputs = static_cast<size_t>(chain.inputs);
  std::vector<float> registers(inputs + chain.steps.size());
  std::vector<int64_t> index(sizes.size());
  const auto element = [&](size_t operand) -> float& {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] * operands[operand].strides[d];
    return static_cast<float*>(data[operand])[offset];
  };
  for (int64_t left = operands[0].numel(); left > 0; --left) {
    for (size_t i = 0; i < inputs; ++i) registers[i] = element(i);
    evaluate_chain(chain, registers);
    for (size_t o = 0; o < chain.outputs.size(); ++o)
      element(inputs + o) = registers[static_cast<size_t>(chain.outputs[o])];
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
    }
  }
}

namespace {

using cases::dense;
using cases::image;

// Strides of 0 where `from` has one index only.
TensorDesc broadcast(TensorDesc from, const std::vector<int64_t>& sizes) {
  for (size_t d = 0; d < sizes.size(); ++d)
    if (from.sizes[d] == 1 && sizes[d] != 1) from.strides[d] = 0;
  from.sizes = sizes;
  return from;
}

TensorDesc with_order(const std::vector<int64_t>& sizes, const std::vector<size_t>& order,
                      int64_t innermost_stride = 1) {
  TensorDesc desc = dense(sizes);
  int64_t stride = innermost_stride;
  for (size_t i = order.size(); i-- > 0;) {
    desc.strides[order[i]] = stride;
    stride *= sizes[order[i]];
  }
  return desc;
}

ChainStep step(ChainOp op, int x, int y = -1, int z = -1, float value = 0) {
  return {.op = op, .x = x, .y = y, .z = z, .value = value, .activation = {}};
}

ChainStep activation(int x, ActivationKind kind, float a = 0, float b = 0) {
  return {.op = ChainOp::kActivation, .x = x, .activation = {kind, a, b}};
}

KernelCase chain_case(Chain chain, std::vector<TensorDesc> operands) {
  return {std::move(chain), std::move(operands)};
}

// Every op, one step each.
void add_single_steps(std::vector<KernelCase>& list) {
  const TensorDesc shape = dense({3, 67});
  for (ChainOp op : {ChainOp::kAdd, ChainOp::kSub, ChainOp::kMul, ChainOp::kMaximum,
                     ChainOp::kMinimum, ChainOp::kPow}) {
    list.push_back(chain_case({2, {step(op, 0, 1)}, {2}}, {shape, shape, shape}));
    list.push_back(chain_case({1, {step(op, 0, 0)}, {1}}, {shape, shape}));
  }
  for (ChainOp op : {ChainOp::kLess, ChainOp::kLessEqual, ChainOp::kEqual})
    for (int y : {0, 1})
      list.push_back(chain_case({2, {step(op, 0, y)}, {2}}, {shape, shape, shape}));
  for (float weight : {0.1f, 0.5f, 0.9f, 1.0f})
    list.push_back(chain_case({2, {step(ChainOp::kLerpScalar, 0, 1, -1, weight)}, {2}},
                              {shape, shape, shape}));
  for (ChainOp op : {ChainOp::kLessScalar, ChainOp::kLessEqualScalar, ChainOp::kGreaterScalar,
                     ChainOp::kGreaterEqualScalar, ChainOp::kEqualScalar})
    list.push_back(
        chain_case({1, {activation(0, ActivationKind::kRelu), step(op, 1)}, {2}}, {shape, shape}));
  for (ChainOp op : {ChainOp::kAddMul, ChainOp::kLerp})
    list.push_back(chain_case({3, {step(op, 0, 1, 2, -0.3f)}, {3}}, {shape, shape, shape, shape}));
  list.push_back(chain_case({3,
                             {activation(0, ActivationKind::kRelu), step(ChainOp::kSelect, 3, 1, 2),
                              step(ChainOp::kSelect, 0, 2, 4)},
                             {4, 5}},
                            {shape, shape, shape, shape, shape}));
  // A divisor away from 0, where results would be incomparable.
  list.push_back(chain_case(
      {2, {step(ChainOp::kAddScalar, 1, -1, -1, 3), step(ChainOp::kAddDiv, 0, 1, 2, -0.3f)}, {3}},
      {shape, shape, shape}));
  list.push_back(
      chain_case({2, {step(ChainOp::kAddScalar, 1, -1, -1, 3), step(ChainOp::kDiv, 0, 2)}, {3}},
                 {shape, shape, shape}));
  list.push_back(
      chain_case({3, {step(ChainOp::kMulAdd, 0, 1, 2)}, {3}}, {shape, shape, shape, shape}));
  for (ChainOp op : {ChainOp::kAddScalar, ChainOp::kMulScalar, ChainOp::kRsubScalar})
    list.push_back(chain_case({1, {step(op, 0, -1, -1, 0.75f)}, {1}}, {shape, shape}));
  for (float exponent : {0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 0.5f, 1.5f})
    list.push_back(
        chain_case({1, {step(ChainOp::kPowScalar, 0, -1, -1, exponent)}, {1}}, {shape, shape}));
  for (ChainOp op : {ChainOp::kNeg, ChainOp::kAbs, ChainOp::kSquare, ChainOp::kExp, ChainOp::kLog,
                     ChainOp::kSqrt, ChainOp::kErf, ChainOp::kSin, ChainOp::kCos})
    list.push_back(chain_case({1, {step(op, 0)}, {1}}, {shape, shape}));
  for (ChainOp op :
       {ChainOp::kReciprocal, ChainOp::kRsqrt, ChainOp::kRdivScalar, ChainOp::kPowScalar})
    list.push_back(chain_case(
        {1, {step(ChainOp::kAddScalar, 0, -1, -1, 1.5f), step(op, 1, -1, -1, -1.25f)}, {2}},
        {shape, shape}));
  for (int kind = 0; kind <= static_cast<int>(ActivationKind::kGeluTanh); ++kind) {
    const auto which = static_cast<ActivationKind>(kind);
    const float a = which == ActivationKind::kClamp ? -0.25f : 0.1f;
    list.push_back(chain_case({1, {activation(0, which, a, 0.5f)}, {1}}, {shape, shape}));
    ChainStep gradient = activation(0, which, a, 0.5f);
    gradient.op = ChainOp::kActivationGradient;
    gradient.y = 2;
    list.push_back(chain_case({2, {step(ChainOp::kMulScalar, 1, -1, -1, 5.0f), gradient}, {3}},
                              {shape, shape, shape}));
    list.push_back(chain_case(
        {1, {step(ChainOp::kMulScalar, 0, -1, -1, 7.0f), activation(1, which, a, 0.5f)}, {2}},
        {shape, shape}));
  }
}

// y * scale + shift, clamped; a residual; a gate that is a sigmoid; two outputs; dead steps.
std::vector<Chain> binary_programs() {
  return {
      {2, {step(ChainOp::kAdd, 0, 1)}, {2}},
      {2, {step(ChainOp::kAdd, 1, 0), activation(2, ActivationKind::kRelu)}, {3}},
      {2, {activation(1, ActivationKind::kSigmoid), step(ChainOp::kMul, 0, 2)}, {3}},
      {2,
       {activation(1, ActivationKind::kSigmoid), step(ChainOp::kMul, 2, 0),
        step(ChainOp::kAdd, 0, 3), activation(4, ActivationKind::kClamp, 0, 0.5f)},
       {5}},
      {2,
       {step(ChainOp::kMul, 0, 0), step(ChainOp::kSub, 2, 1), step(ChainOp::kMul, 3, 3),
        step(ChainOp::kAdd, 4, 2), step(ChainOp::kExp, 0)},
       {5, 3}},
      {2, {step(ChainOp::kExp, 1)}, {2, 0, 1}},
  };
}

KernelCase binary_case(const Chain& chain, const TensorDesc& x, const TensorDesc& y,
                       const TensorDesc& output) {
  KernelCase result{chain, {x, y}};
  for (size_t i = 0; i < chain.outputs.size(); ++i) result.operands.push_back(output);
  return result;
}

void add_broadcasts(std::vector<KernelCase>& list) {
  // Every combination of broadcast dims, dense and channels last.
  const std::vector<std::vector<int64_t>> shapes = {
      {}, {1}, {7}, {67}, {5, 33}, {3, 4, 19}, {2, 5, 3, 7}, {2, 3, 2, 3, 5}};
  size_t program = 0;
  const std::vector<Chain> programs = binary_programs();
  for (const auto& sizes : shapes) {
    for (size_t mask = 0; mask < size_t{1} << sizes.size(); ++mask) {
      std::vector<int64_t> narrow = sizes;
      for (size_t d = 0; d < sizes.size(); ++d)
        if (mask >> d & 1) narrow[d] = 1;
      const TensorDesc small = broadcast(dense(narrow), sizes);
      list.push_back(
          binary_case(programs[program++ % programs.size()], dense(sizes), small, dense(sizes)));
      if (sizes.size() == 4) {
        const TensorDesc last = image(sizes[0], sizes[1], sizes[2], sizes[3]);
        for (const Chain& chain : programs) {
          list.push_back(binary_case(chain, last, small, last));
          list.push_back(binary_case(chain, small, last, last));
        }
        list.push_back(binary_case(programs[1], dense(sizes), small, last));
      }
    }
  }
}

void add_layouts(std::vector<KernelCase>& list) {
  const std::vector<Chain> programs = binary_programs();
  const auto gate = [](const TensorDesc& like) {
    return broadcast(dense({like.sizes[0], like.sizes[1], 1, 1}), like.sizes);
  };
  // Images: widths around the lanes, strips, runs longer than a block, slices of wider images.
  for (int64_t channels : {1, 3, 16, 24, 67, 130, 520, 1100}) {
    for (const Chain& chain : programs) {
      const TensorDesc x = image(2, channels, 3, 5);
      list.push_back(binary_case(chain, x, gate(x), x));
      const TensorDesc wide = image(2, channels, 3, 5, channels + 7);
      list.push_back(binary_case(chain, wide, gate(x), x));
      list.push_back(binary_case(chain, x, gate(x), wide));
      list.push_back(binary_case(chain, wide, x, wide));
    }
  }
  // Channels first with long and short planes.
  for (int64_t plane : {7, 37}) {
    for (const Chain& chain : programs) {
      const TensorDesc x = dense({2, 5, plane, plane});
      list.push_back(binary_case(chain, x, gate(x), x));
    }
  }
  const TensorDesc long_runs = dense({3, 9001});
  for (const Chain& chain : programs) {
    list.push_back(
        binary_case(chain, long_runs, broadcast(dense({1, 9001}), {3, 9001}), long_runs));
    list.push_back(binary_case(chain, long_runs, broadcast(dense({3, 1}), {3, 9001}), long_runs));
  }
  // Transposed, with gaps, empty, and of high rank.
  for (const Chain& chain : programs) {
    const TensorDesc odd = with_order({9, 8, 7}, {1, 2, 0}, 3);
    list.push_back(binary_case(chain, odd, dense({9, 8, 7}), with_order({9, 8, 7}, {2, 0, 1})));
    list.push_back(binary_case(chain, dense({9, 8, 7}), odd, odd));
    list.push_back(binary_case(chain, dense({4, 0, 3}), dense({4, 0, 3}), dense({4, 0, 3})));
    list.push_back(binary_case(chain, dense({2, 3, 2, 2, 3, 2, 3}),
                               with_order({2, 3, 2, 2, 3, 2, 3}, {0, 2, 1, 4, 3, 6, 5}),
                               dense({2, 3, 2, 2, 3, 2, 3})));
  }
  TensorDesc offset = dense({5, 6});
  offset.offset = 11;
  list.push_back(binary_case(programs[4], offset, dense({5, 6}), offset));
}

KernelCase scale_shift_relu(const TensorDesc& x) {
  const TensorDesc vector = broadcast(dense({1, x.sizes[1], 1, 1}), x.sizes);
  return {Chain{3,
                {step(ChainOp::kMul, 0, 1), step(ChainOp::kAdd, 3, 2),
                 activation(4, ActivationKind::kRelu)},
                {5}},
          {x, vector, vector, x}};
}

// Batch norm in front of a relu6, backward: what the norm made is made again, or was kept.
// Inputs: gradient, input, scale and shift or what was made, mean and three factors.
KernelCase norm_gradient(const TensorDesc& x, bool again) {
  const int mean = again ? 4 : 3;
  const int inputs = mean + 4;
  ChainStep through = step(ChainOp::kActivationGradient, 0, again ? inputs : 2);
  through.activation = {ActivationKind::kClamp, 0, 6};
  Chain chain{inputs, {}, {}};
  if (again) chain.steps.push_back(step(ChainOp::kMulAdd, 1, 2, 3));
  const int first = inputs + (again ? 1 : 0);
  chain.steps.insert(chain.steps.end(), {through, step(ChainOp::kSub, 1, mean),
                                         step(ChainOp::kMulAdd, first + 1, mean + 1, first),
                                         step(ChainOp::kMulAdd, first + 2, mean + 2, mean + 3)});
  chain.outputs = {first + 3};
  const TensorDesc vector = broadcast(dense({1, x.sizes[1], 1, 1}), x.sizes);
  std::vector<TensorDesc> operands(static_cast<size_t>(inputs), vector);
  operands[0] = operands[1] = x;
  if (!again) operands[2] = x;
  operands.push_back(x);
  return {chain, operands};
}

}  // namespace

std::vector<KernelCase> chain_test_cases() {
  std::vector<KernelCase> list;
  add_single_steps(list);
  add_broadcasts(list);
  add_layouts(list);
  for (int64_t channels : {3, 24, 32, 100})
    list.push_back(scale_shift_relu(image(1, channels, 5, 7)));
  for (const TensorDesc& x : {image(2, 3, 5, 7), image(2, 16, 4, 3), image(3, 24, 1, 1),
                              image(2, 67, 3, 5), image(2, 24, 5, 7, 40), image(0, 24, 5, 7)}) {
    list.push_back(norm_gradient(x, true));
    list.push_back(norm_gradient(x, false));
  }
  const Chain affine{
      1,
      {step(ChainOp::kMulScalar, 0, -1, -1, 3), step(ChainOp::kAddScalar, 1, -1, -1, 1),
       activation(2, ActivationKind::kRelu)},
      {3}};
  for (int64_t size = 1; size <= 67; ++size)
    list.push_back({affine, {dense({size}), dense({size})}});
  return list;
}

std::vector<KernelCase> chain_bench_cases() {
  std::vector<KernelCase> list;
  const Chain add{2, {step(ChainOp::kAdd, 0, 1)}, {2}};
  const Chain relu{1, {activation(0, ActivationKind::kRelu)}, {1}};
  const Chain gate{2, {step(ChainOp::kMul, 0, 1)}, {2}};
  const Chain sigmoid_gate{
      2, {activation(1, ActivationKind::kSigmoid), step(ChainOp::kMul, 0, 2)}, {3}};
  for (const TensorDesc& x :
       {image(1, 64, 112, 112), image(1, 88, 28, 28), image(1, 768, 14, 14)}) {
    list.push_back({add, {x, x, x}});
    list.push_back({relu, {x, x}});
    list.push_back(scale_shift_relu(x));
  }
  for (ActivationKind kind : {ActivationKind::kGeluErf, ActivationKind::kGeluTanh,
                              ActivationKind::kSilu, ActivationKind::kHardSwish})
    list.push_back(
        {Chain{1, {activation(0, kind)}, {1}}, {dense({128, 3072}), dense({128, 3072})}});
  for (const TensorDesc& x :
       {image(1, 96, 112, 112), image(1, 24, 56, 56), image(1, 672, 14, 14)}) {
    const TensorDesc vector = broadcast(dense({1, x.sizes[1], 1, 1}), x.sizes);
    list.push_back({gate, {x, vector, x}});
    list.push_back({sigmoid_gate, {x, vector, x}});
  }
  // Batch norm in training, forward: x * (weight / deviation) + (bias - mean * weight / deviation).
  const Chain normalise{
      5,
      {step(ChainOp::kMul, 2, 3), step(ChainOp::kMul, 1, 5), step(ChainOp::kSub, 4, 6),
       step(ChainOp::kMul, 0, 5), step(ChainOp::kAdd, 8, 7), activation(9, ActivationKind::kRelu)},
      {10}};
  for (const TensorDesc& x : {image(32, 16, 32, 32), image(32, 24, 32, 32), image(32, 64, 32, 32),
                              image(32, 512, 4, 4)}) {
    const TensorDesc vector = broadcast(dense({1, x.sizes[1], 1, 1}), x.sizes);
    list.push_back({normalise, {x, vector, vector, vector, vector, x}});
  }
  for (const TensorDesc& x : {image(8, 32, 16, 16), image(32, 96, 8, 8), image(32, 144, 8, 8),
                              image(32, 192, 4, 4), image(32, 576, 2, 2), image(32, 960, 1, 1)})
    list.push_back(norm_gradient(x, true));
  // Updates of parameters of ResNet-50: SGD with momentum and decay, Adam.
  const Chain sgd{4,
                  {step(ChainOp::kMulScalar, 0, -1, -1, 1e-4f), step(ChainOp::kAdd, 1, 4),
                   step(ChainOp::kMulScalar, 2, -1, -1, 0.9f), step(ChainOp::kAdd, 6, 5),
                   step(ChainOp::kMul, 7, 3), step(ChainOp::kSub, 0, 8)},
                  {9, 7}};
  const Chain adam{
      6,
      {step(ChainOp::kLerpScalar, 2, 1, -1, 0.1f), step(ChainOp::kMulScalar, 3, -1, -1, 0.999f),
       step(ChainOp::kAddMul, 7, 1, 1, 0.001f), step(ChainOp::kSqrt, 8), step(ChainOp::kDiv, 9, 4),
       step(ChainOp::kAddScalar, 10, -1, -1, 1e-8f), step(ChainOp::kMul, 6, 5),
       step(ChainOp::kAddDiv, 0, 12, 11, -1.0f)},
      {13, 6, 8}};
  for (const TensorDesc& p : {dense({64}), dense({256, 64, 1, 1}), dense({512, 512, 3, 3})}) {
    const TensorDesc number = broadcast(dense(std::vector<int64_t>(p.sizes.size(), 1)), p.sizes);
    list.push_back({sgd, {p, p, p, number, p, p}});
    list.push_back({adam, {p, p, p, p, number, number, p, p, p}});
  }
  // Into a slice of a concatenation.
  const TensorDesc x = image(1, 32, 28, 28);
  list.push_back({add, {x, x, image(1, 32, 28, 28, 256)}});
  for (ChainOp op : {ChainOp::kExp, ChainOp::kLog, ChainOp::kSin})
    list.push_back({Chain{1, {step(op, 0)}, {1}}, {dense({128, 768}), dense({128, 768})}});
  list.push_back({Chain{1, {step(ChainOp::kPowScalar, 0, -1, -1, 1.7f)}, {1}},
                  {dense({128, 768}), dense({128, 768})}});
  return list;
}

}  // namespace nimble
