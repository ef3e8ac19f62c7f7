#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

// What an op computes, apart from its tensors. The comment of each struct gives the order of its
// operands; those in brackets are there if the flag says so. All tensors are float32 except where
// said. Sizes and strides come from the operands' descriptions; image tensors are logically
// [N, C, H, W], whatever their strides.
//
// Rows and columns are the two ways to divide an op between tasks. Unless said otherwise, a row is
// one index of the output's outer dimensions (see row_dims in kernels/work.h), and the columns are
// the output's channels (dim 1 of an image, else the last dim).
namespace nimble {

enum class ActivationKind : uint8_t {
  kNone,
  kRelu,
  kClamp,      // to [a, b]; relu6 is clamp to [0, 6]
  kLeakyRelu,  // slope a
  kElu,        // alpha a
  kHardSwish,
  kHardSigmoid,
  kSilu,
  kSigmoid,
  kTanh,
  kGeluErf,
  kGeluTanh,
};

// NaN stays NaN in all of them.
struct Activation {
  ActivationKind kind = ActivationKind::kNone;
  float a = 0;
  float b = 0;
  bool operator==(const Activation&) const = default;
};

// What happens to a result in registers: last(first(x) + addend).
struct Epilogue {
  Activation first = {};
  bool add = false;  // there is an addend: an operand like the output
  Activation last = {};
  bool operator==(const Epilogue&) const = default;
};

// Operands: input, weight [O, I/groups, kh, kw], [bias], [scale], [addend], output.
// Weight and bias usually are constants: kernels pack them ahead of time. What lies outside of the
// input is zero; the far padding follows from the output's size. Rows are N * output height.
// The scale is no constant. It has the input's sizes, and stride 0 in H and W: the input is
// multiplied first by one factor per image and channel.
struct Convolution {
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> padding = {0, 0};  // top, left
  std::array<int64_t, 2> dilation = {1, 1};
  int64_t groups = 1;
  bool bias = false;
  bool relu_input = false;  // applied to the input first; only where groups == input channels
  // There is a scale; only for 1x1, one group, stride 1, no padding, and not with relu_input.
  bool scale_input = false;
  Epilogue epilogue = {};
  bool allow_winograd = false;
  bool constant_weight = true;  // false: as in training; nothing is packed ahead of time
  bool operator==(const Convolution&) const = default;

  // The places of operands that are there; without an addend, the second is the output's.
  size_t scale_operand() const { return 2 + size_t{bias}; }
  size_t addend_operand() const { return scale_operand() + size_t{scale_input}; }
};

// The gradient of a convolution's input. Operands: grad_output, weight [O, I/groups, kh, kw],
// grad_input. All else is the convolution's; the weight is no constant. Rows are N * input height.
struct ConvolutionBackwardInput {
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> padding = {0, 0};
  std::array<int64_t, 2> dilation = {1, 1};
  int64_t groups = 1;
  bool allow_winograd = false;
  bool operator==(const ConvolutionBackwardInput&) const = default;
};

// The gradient of a convolution's weight, and of its bias. Operands: input, grad_output,
// grad_weight [O, I/groups, kh, kw], [grad_bias: O]. Rows are output channels, columns the input
// channels of a group; the part that has column 0 of a row writes the row's grad_bias.
struct ConvolutionBackwardWeight {
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> padding = {0, 0};
  std::array<int64_t, 2> dilation = {1, 1};
  int64_t groups = 1;
  bool bias = false;
  bool operator==(const ConvolutionBackwardWeight&) const = default;
};

// A depthwise convolution (channel multiplier 1) followed by a 1x1 convolution of stride 1, the
// rows in between kept in cache.
// Operands: input, depthwise weight, [depthwise bias], pointwise weight, [pointwise bias],
// [addend], output. The depthwise epilogue has no addend.
struct SeparableConvolution {
  Convolution depthwise;
  Convolution pointwise;
  bool operator==(const SeparableConvolution&) const = default;
};

// output = epilogue(alpha * a @ b + bias).
// Operands: a [..., M, K], b [..., K, N], [bias], [addend], output [..., M, N]. All have the same
// rank of 2 or more; a dim of size 1 or stride 0 in front broadcasts. The bias has the output's
// rank (stride 0 where it broadcasts). Rows are those of the output: batch * M.
struct MatMul {
  bool constant_b = false;  // b and the bias are constants, packed ahead of time
  float alpha = 1;
  bool bias = false;
  Epilogue epilogue = {};
  bool operator==(const MatMul&) const = default;
};

// Operands: input, [addend], output. Rows are N * output height.
struct Pool {
  enum class Kind : uint8_t { kMax, kAverage };
  Kind kind = Kind::kMax;
  std::array<int64_t, 2> kernel = {1, 1};
  std::array<int64_t, 2> stride = {1, 1};
  std::array<int64_t, 2> padding = {0, 0};      // top, left
  std::array<int64_t, 2> far_padding = {0, 0};  // bottom, right; as counted by an average
  std::array<int64_t, 2> dilation = {1, 1};
  bool count_include_pad = true;  // average: padding counts in the divisor (ceil-mode overhang not)
  int64_t divisor = 0;            // average: 0: the window's size by the rule above
  Epilogue epilogue = {};
  bool operator==(const Pool&) const = default;
};

// Windows as of torch.adaptive_*_pool2d. Operands: input, output. Rows are N * output height.
struct AdaptivePool {
  Pool::Kind kind = Pool::Kind::kAverage;
  bool operator==(const AdaptivePool&) const = default;
};

// aten::max_pool2d_with_indices. Operands: input, output, indices (int64, like the output: y * W +
// x of the input; the first of equal maxima, the last NaN). The pool is a maximum without an
// epilogue. Rows are N * output height.
struct MaxPoolIndices {
  Pool pool;
  bool operator==(const MaxPoolIndices&) const = default;
};

// The gradient of a pool without an epilogue. Operands: gradient of the result, [indices of a
// maximum, as of MaxPoolIndices], gradient of the input. Rows are N * input height.
struct PoolGradient {
  Pool pool;
  bool operator==(const PoolGradient&) const = default;
};

// The gradient of an average as of AdaptivePool. Operands: gradient of the result, gradient of the
// input. Rows are N * input height.
struct AdaptivePoolGradient {
  bool operator==(const AdaptivePoolGradient&) const = default;
};

// Elementwise ops on registers. Registers 0 … inputs-1 are the inputs; step i makes register
// inputs + i. Operands: inputs…, outputs… (float32 only), all of the same sizes; stride 0
// broadcasts. Rows: row_dims of the first output.
// An output may be the very same memory and view as inputs (an update in place): every element is
// read before it is written. Other overlaps of outputs with anything are not allowed.
enum class ChainOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  kPow,   // x, y
  kLess,  // 1 or 0; 0 where one is NaN
  kLessEqual,
  kEqual,
  kLerpScalar,          // x + value * (y - x), from y where value is 0.5 or more
  kActivationGradient,  // x: gradient of the result; y: see below
  kMulAdd,              // x * y + z
  kSelect,              // x != 0 ? y : z
  kAddMul,              // x + (value * y) * z
  kAddDiv,              // x + (value * y) / z
  kLerp,                // as kLerpScalar, by z
  kAddScalar,
  kMulScalar,
  kPowScalar,  // x, value (`kRsubScalar`: value - x)
  kRsubScalar,
  kRdivScalar,
  kLessScalar,
  kLessEqualScalar,
  kGreaterScalar,
  kGreaterEqualScalar,
  kEqualScalar,
  kNeg,
  kAbs,
  kSquare,
  kReciprocal,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kErf,
  kSin,
  kCos,
  kActivation,  // x, activation
};
// How many of x, y, z a step reads.
inline int register_count(ChainOp op) {
  return op <= ChainOp::kActivationGradient ? 2 : op <= ChainOp::kLerp ? 3 : 1;
}

// Of kActivationGradient, y is the activation's input, but its result for kSigmoid and kTanh. As
// PyTorch's vectors do it on a CPU:
//   kRelu         y <= a ? 0 : x (aten::threshold_backward; a NaN in y counts as above)
//   kClamp        a < y < b ? x : 0 (aten::hardtanh_backward)
//   kLeakyRelu    y > 0 ? x : x * a
//   kElu          y > 0 ? x : x * a * e^y
//   kHardSwish    y <= -3 ? 0 : y >= 3 ? x : x * (y / 3 + 1/2)
//   kHardSigmoid  -3 < y < 3 ? x / 6 : 0
//   kSilu         x * s * (1 + y * (1 - s)), s = sigmoid(y)
//   kSigmoid      x * (1 - y) * y
//   kTanh         x * (1 - y * y)
//   kGeluErf      x * (cdf(y) + y * pdf(y)), of the normal distribution
//   kGeluTanh     the derivative of the approximation
struct ChainStep {
  ChainOp op = ChainOp::kAdd;
  int x = -1;  // registers
  int y = -1;
  int z = -1;
  float value = 0;
  Activation activation = {};
  bool operator==(const ChainStep&) const = default;
};
struct Chain {
  int inputs = 0;
  std::vector<ChainStep> steps;
  std::vector<int> outputs;  // registers
  bool operator==(const Chain&) const = default;
};

// Elements of a chain's registers summed up over all dims but the channels (dim 1 of an image, else
// the last dim), in B blocks. Operands: the chain's inputs…, the chain's outputs…, sums [B, C]…,
// one for each register of `sums`. B = 1 gives the whole sum; the sums of several blocks are to be
// added up by a Reduce over dim 0. Rows are blocks, and all columns belong together. Of R rows,
// block b has [b * R / B, (b + 1) * R / B): rows are N * H of an image, and all indices of the dims
// but the last otherwise.
struct ChainSums {
  Chain chain;  // may have no outputs
  std::vector<int> sums;
  bool operator==(const ChainSums&) const = default;
};

// What batch norm needs of an image in training, in two ops.
// First the mean and the sum of squared distances from it, by channel and block (as of ChainSums).
// Operands: input, means [B, C], squares [B, C]. Rows are blocks.
struct ChannelMoments {
  bool operator==(const ChannelMoments&) const = default;
};

// Then those of all blocks: as of aten::native_batch_norm(training=True).
// Operands: means [B, C], squares [B, C], mean [C], 1 / sqrt(biased variance + epsilon) [C],
// [running mean [C], running variance [C]: both read and written]. Columns are channels.
struct BatchStatistics {
  int64_t rows = 1;          // of the image, in all blocks
  int64_t row_elements = 1;  // of a channel
  double epsilon = 1e-5;
  double momentum = 0.1;
  bool running = false;
  bool operator==(const BatchStatistics&) const = default;
};

// Operands: input, output. Reduced dims have size 1 in the output. Rows: row_dims of the output.
struct Reduce {
  enum class Kind : uint8_t { kSum, kMean, kMax, kMin };
  Kind kind = Kind::kSum;
  std::vector<int64_t> dims;
  bool operator==(const Reduce&) const = default;
};

// Operands: input, output. Rows: row_dims of the output; where the reduced dim is one of them, the
// grain is as many rows as have whole reductions.
struct Softmax {
  int64_t dim = -1;
  bool log = false;
  bool safe = false;  // where all are -infinity, 0 instead of NaN; not with log
  bool operator==(const Softmax&) const = default;
};

// Operands: gradient of the result, the result, gradient of the input, all with the same strides.
// Rows: as of Softmax.
struct SoftmaxGradient {
  int64_t dim = -1;
  bool log = false;
  bool operator==(const SoftmaxGradient&) const = default;
};

// The negative log likelihood of classes, as of aten::nll_loss_forward for [N, C].
// Operands: log probabilities [N, C], targets (int64) [N], [weight C], loss ([N] without a
// reduction, else one number), total weight (one number). A target out of range is an error
// (std::out_of_range). In one piece.
enum class LossReduction : uint8_t { kNone, kMean, kSum };  // numbered as the framework does
struct NllLoss {
  LossReduction reduction = LossReduction::kMean;
  int64_t ignore_index = -100;
  bool weight = false;
  bool operator==(const NllLoss&) const = default;
};

// Operands: gradient of the loss, targets (int64) [N], [weight C], total weight, gradient of the
// log probabilities [N, C]. Rows are N.
struct NllLossGradient {
  NllLoss loss;
  bool operator==(const NllLossGradient&) const = default;
};

// Over the last `dims` dims. Operands: input, [weight], [bias], output, [mean, 1 / deviation: one
// of each per normalised part, row-major]. Weight and bias have the sizes of those dims. Rows: as
// of Softmax.
struct LayerNorm {
  int64_t dims = 1;
  double epsilon = 1e-5;
  bool weight = false;
  bool bias = false;
  bool rms = false;  // no mean is subtracted
  Activation activation = {};
  bool statistics = false;  // there are outputs for them; not with rms
  bool operator==(const LayerNorm&) const = default;
};

// The gradient of a layer norm's input. Operands: gradient of the result, input, mean, 1 /
// deviation (as of LayerNorm), [weight], gradient of the input; all row-major. Rows: as of Softmax.
// Those of weight and bias are ChainSums of gradient * (input - mean) / deviation and of the
// gradient.
struct LayerNormGradient {
  int64_t dims = 1;
  bool weight = false;
  bool operator==(const LayerNormGradient&) const = default;
};

// Operands: input [N, C, ...], [weight C], [bias C], output. Rows are N, columns C (by groups).
struct GroupNorm {
  int64_t groups = 1;
  double epsilon = 1e-5;
  bool weight = false;
  bool bias = false;
  Activation activation = {};
  bool operator==(const GroupNorm&) const = default;
};

// Operands: indices (int64 or int32), weight [V, D], output [indices..., D]. Rows are indices, in
// the order of the output's outer dims by stride (as of row_dims).
// An index out of range is an error (std::out_of_range).
struct Embedding {
  bool operator==(const Embedding&) const = default;
};

// The gradient of an embedding's weight, dense. Operands: gradient of the result [..., D], indices
// (int64 or int32) [...], gradient of the weight [V, D]. Rows are V. What padding_index looked up
// has none. An index out of range is an error (std::out_of_range).
struct EmbeddingGradient {
  int64_t padding_index = -1;
  bool operator==(const EmbeddingGradient&) const = default;
};

// softmax(scale * q k^T + mask) v. Operands: q [B, H, L, E], k [B, H, S, E], v [B, H, S, D],
// [mask: B, H, L, S with stride 0 where it broadcasts], output [B, H, L, D]. Rows are B * H,
// columns are queries (L). Causal: query i sees the keys up to i. A query that sees no key gives 0.
struct Attention {
  double scale = 1;
  bool causal = false;
  bool mask = false;
  bool operator==(const Attention&) const = default;
};

// Operands: input, output. Rows are N * output height.
struct Resize {
  enum class Kind : uint8_t { kNearest, kBilinear };
  Kind kind = Kind::kNearest;
  bool align_corners = false;
  std::array<double, 2> scale = {0, 0};  // input step per output pixel as given by the user's scale
                                         // factor (its inverse); 0: from the sizes
  bool operator==(const Resize&) const = default;
};

// Copies elements of any 4-byte or other type of a common size between strides: layouts, slices,
// clones. Operands: input, output, of the same sizes and dtype (input stride 0 broadcasts).
// Rows: row_dims of the output.
struct Copy {
  bool operator==(const Copy&) const = default;
};

// The output is the input with `value` around it. Operands: input, output, of the same rank.
struct Pad {
  std::vector<int64_t> begin;  // by dim; negative crops
  float value = 0;
  bool operator==(const Pad&) const = default;
};

// Operands: inputs…, output. Passes turn it into writes and copies; it has no kernel.
struct Concatenation {
  int64_t dim = 0;
  bool operator==(const Concatenation&) const = default;
};

using OpAttributes =
    std::variant<Convolution, SeparableConvolution, ConvolutionBackwardInput,
                 ConvolutionBackwardWeight, MatMul, Pool, AdaptivePool, Chain, Reduce, Softmax,
                 LayerNorm, GroupNorm, Embedding, Attention, Resize, Copy, Pad, Concatenation,
                 ChainSums, ChannelMoments, BatchStatistics, MaxPoolIndices, PoolGradient,
                 AdaptivePoolGradient, SoftmaxGradient, NllLoss, NllLossGradient, LayerNormGradient,
                 EmbeddingGradient>;

// How many of an op's operands are written: its last ones.
size_t output_count(const OpAttributes& attributes);
// How many of those are read first: the last ones again.
size_t updated_count(const OpAttributes& attributes);

// "convolution 3x3 s2 + relu", for people.
std::string describe(const OpAttributes& attributes);

}  // namespace nimble
