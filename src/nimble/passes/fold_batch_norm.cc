#include "nimble/passes/fold_batch_norm.h"

#include <utility>

#include "nimble/passes/chain_steps.h"
#include "nimble/passes/round.h"

namespace nimble {
namespace {

// A constant for each channel: a step through a memory.
struct ChannelVector {
  MemoryId memory;
  DType dtype;
  int64_t offset = 0;
  int64_t stride = 0;
};

// x * scale + shift, either of which may be missing; `number` scales too.
struct Affine {
  size_t input = 0;  // the operand that is x
  std::optional<ChannelVector> scale;
  std::optional<ChannelVector> shift;
  std::optional<float> number;
};

// What an operand is along `channel_dim` of a tensor with these sizes; none if it varies otherwise.
std::optional<ChannelVector> channel_vector(const Graph& graph, const Operand& operand,
                                            const std::vector<int64_t>& sizes, size_t channel_dim) {
  const auto desc = reshaped(graph.desc_of(operand), sizes);
  if (!desc || desc->conjugate || desc->negative) return std::nullopt;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (d != channel_dim && sizes[d] != 1 && desc->strides[d] != 0) return std::nullopt;
  return ChannelVector{operand.memory, desc->dtype, desc->offset,
                       sizes[channel_dim] == 1 ? 0 : desc->strides[channel_dim]};
}

// The view of a channel vector with these sizes, varying along one dim.
TensorDesc spread(const ChannelVector& vector, std::vector<int64_t> sizes, size_t channel_dim) {
  TensorDesc desc;
  desc.dtype = vector.dtype;
  desc.strides.assign(sizes.size(), 0);
  desc.strides[channel_dim] = vector.stride;
  desc.sizes = std::move(sizes);
  desc.offset = vector.offset;
  return desc;
}

class Folder {
 public:
  Folder(Round& round, OpId chain) : round_(round), graph_(round.graph), chain_(chain) {}

  void run() {
    const auto* chain = attributes_of<Chain>(round_.op(chain_));
    if (chain == nullptr || chain->steps.size() != 1 || chain->outputs.size() != 1) return;
    // Which operand is x shows in who made it.
    for (int x = 0; x < chain->inputs; ++x) {
      const Operand& operand = round_.op(chain_).operands[x];
      maker_ = round_.private_maker(operand, chain_);
      if (!maker_.valid()) continue;
      const TensorDesc& made = graph_.desc_of(round_.op(maker_).operands.back());
      if (!same_elements(made, graph_.desc_of(operand))) continue;
      sizes_ = made.sizes;
      if (attributes_of<Convolution>(round_.op(maker_)) != nullptr && fold_convolution(x)) return;
      if (attributes_of<MatMul>(round_.op(maker_)) != nullptr && fold_matmul(x)) return;
    }
  }

 private:
  // The chain as an affine function of input x, the others being constants by channel.
  std::optional<Affine> affine_in(int x) const {
    const Op& op = round_.op(chain_);
    const ChainStep step = attributes_of<Chain>(op)->steps[0];
    const auto vector = [&](int input) -> std::optional<ChannelVector> {
      if (input == x || !round_.uses.is_constant(op.operands[input].memory)) return std::nullopt;
      return channel_vector(graph_, op.operands[input], sizes_, channel_dim_);
    };
    const int other = step.x == x ? step.y : step.x;
    Affine affine;
    switch (step.op) {
      case ChainOp::kMulAdd:
        if (step.x != x && step.y != x) return std::nullopt;
        affine.scale = vector(other);
        affine.shift = vector(step.z);
        return affine.scale && affine.shift ? std::optional(affine) : std::nullopt;
      case ChainOp::kMul:
        affine.scale = vector(other);
        return affine.scale ? std::optional(affine) : std::nullopt;
      case ChainOp::kAdd:
        affine.shift = vector(other);
        return affine.shift ? std::optional(affine) : std::nullopt;
      case ChainOp::kMulScalar:
        affine.number = step.value;
        return affine;
      default:
        return std::nullopt;
    }
  }

  bool fold_convolution(int x) {
    Convolution convolution = *attributes_of<Convolution>(round_.op(maker_));
    if (!(convolution.epilogue == Epilogue{}) || sizes_.size() != 4) return false;
    channel_dim_ = 1;
    const auto affine = affine_in(x);
    if (!affine || !prepare()) return false;
    Op folded = round_.op(maker_);
    folded.operands.pop_back();
    if (!round_.uses.is_constant(folded.operands[1].memory)) return false;
    if (convolution.bias && !round_.uses.is_constant(folded.operands[2].memory)) return false;

    scale_operand(folded.operands[1], *affine, 0);
    const std::vector<int64_t> bias_sizes = {sizes_[1]};
    if (convolution.bias)
      change_bias(folded.operands[2], *affine, bias_sizes, 0);
    else if (affine->shift)
      folded.operands.insert(folded.operands.begin() + 2, new_bias(*affine->shift, bias_sizes, 0));
    convolution.bias = convolution.bias || affine->shift;
    finish(std::move(folded), convolution);
    return true;
  }

  bool fold_matmul(int x) {
    MatMul matmul = *attributes_of<MatMul>(round_.op(maker_));
    if (!(matmul.epilogue == Epilogue{})) return false;
    channel_dim_ = sizes_.size() - 1;
    const auto affine = affine_in(x);
    if (!affine || !prepare()) return false;
    Op folded = round_.op(maker_);
    folded.operands.pop_back();
    const bool scales = affine->scale || affine->number;
    const bool constant_b = matmul.constant_b && round_.uses.is_constant(folded.operands[1].memory);
    if (matmul.bias) {
      // The bias must be the same in each row to become another one.
      if (!round_.uses.is_constant(folded.operands[2].memory) ||
          !channel_vector(graph_, folded.operands[2], sizes_, channel_dim_))
        return false;
    }
    if (scales && !constant_b && (affine->scale || matmul.bias)) return false;

    if (affine->number && !matmul.bias)
      matmul.alpha *= *affine->number;
    else if (scales)
      scale_operand(folded.operands[1], *affine,
                    graph_.desc_of(folded.operands[1]).sizes.size() - 1);
    if (matmul.bias)
      change_bias(folded.operands[2], *affine, sizes_, channel_dim_);
    else if (affine->shift)
      folded.operands.push_back(new_bias(*affine->shift, sizes_, channel_dim_));
    matmul.bias = matmul.bias || affine->shift;
    finish(std::move(folded), matmul);
    return true;
  }

  // Whether there is a place and a view to write the result; nothing is changed before that.
  bool prepare() {
    const auto desc = reshaped(graph_.desc_of(round_.op(chain_).operands.back()), sizes_);
    place_ = round_.place_for_both(maker_, chain_);
    if (!desc || !place_.valid()) return false;
    result_ = *desc;
    return true;
  }

  void finish(Op folded, OpAttributes attributes) {
    folded.name = joined_name(folded, round_.op(chain_));
    folded.attributes = std::move(attributes);
    const MemoryId memory = round_.op(chain_).operands.back().memory;
    folded.operands.push_back(writing(memory, add_view(graph_, result_)));
    round_.erase(place_ == maker_ ? chain_ : maker_);
    round_.replace(place_, std::move(folded));
  }

  // An op on constants; the operand that reads its result.
  Operand constant(OpAttributes attributes, std::vector<Operand> operands,
                   const std::vector<int64_t>& sizes, const DType& dtype) {
    const TensorDesc desc = row_major(dtype, sizes);
    const MemoryId memory = add_memory(graph_, desc.end_byte(), Role::kFolded);
    const ViewId view = add_view(graph_, desc);
    operands.push_back(writing(memory, view));
    Op op;
    op.name = "folded " + round_.op(chain_).name;
    op.module = round_.op(chain_).module;
    op.source = round_.op(chain_).source;
    op.operands = std::move(operands);
    op.attributes = std::move(attributes);
    graph_.constant_ops.push_back(std::move(op));
    return reading(memory, view);
  }

  Operand read(const ChannelVector& vector, const std::vector<int64_t>& sizes, size_t channel_dim) {
    return reading(vector.memory, add_view(graph_, spread(vector, sizes, channel_dim)));
  }

  void scale_operand(Operand& operand, const Affine& affine, size_t channel_dim) {
    if (!affine.scale && !affine.number) return;
    const DType dtype = graph_.desc_of(operand).dtype;
    const std::vector<int64_t> sizes = graph_.desc_of(operand).sizes;
    const Operand old = reading(operand.memory, operand.view);
    if (affine.scale)
      operand = constant(Chain{2, {chain_step(ChainOp::kMul, 0, 1)}, {2}},
                         {old, read(*affine.scale, sizes, channel_dim)}, sizes, dtype);
    else
      operand = constant(Chain{1, {scalar_step(ChainOp::kMulScalar, 0, *affine.number)}, {1}},
                         {old}, sizes, dtype);
  }

  Operand new_bias(const ChannelVector& shift, const std::vector<int64_t>& sizes,
                   size_t channel_dim) {
    const Operand operand = read(shift, sizes, channel_dim);
    if (shift.stride == 1 || sizes[channel_dim] == 1) return operand;
    // Kernels may want it dense.
    const Operand vector = read(shift, {sizes[channel_dim]}, 0);
    return expanded(constant(Copy{}, {vector}, {sizes[channel_dim]}, shift.dtype), sizes,
                    channel_dim);
  }

  // A dense vector, seen with these sizes.
  Operand expanded(const Operand& vector, const std::vector<int64_t>& sizes, size_t channel_dim) {
    const TensorDesc& desc = graph_.desc_of(vector);
    return read({vector.memory, desc.dtype, desc.offset, 1}, sizes, channel_dim);
  }

  // bias * scale + shift
  void change_bias(Operand& bias, const Affine& affine, const std::vector<int64_t>& sizes,
                   size_t channel_dim) {
    const auto old = channel_vector(graph_, bias, sizes, channel_dim);
    const std::vector<int64_t> length = {sizes[channel_dim]};
    Chain chain;
    std::vector<Operand> operands = {read(*old, length, 0)};
    int value = 0;
    chain.inputs = 1 + (affine.scale ? 1 : 0) + (affine.shift ? 1 : 0);
    const auto step = [&](ChainStep next) {
      chain.steps.push_back(next);
      value = chain.inputs + static_cast<int>(chain.steps.size()) - 1;
    };
    const auto operand_of = [&](const ChannelVector& vector) {
      operands.push_back(read(vector, length, 0));
      return static_cast<int>(operands.size()) - 1;
    };
    if (affine.scale && affine.shift) {
      const int scale = operand_of(*affine.scale);
      step(chain_step(ChainOp::kMulAdd, 0, scale, operand_of(*affine.shift)));
    } else if (affine.scale) {
      step(chain_step(ChainOp::kMul, 0, operand_of(*affine.scale)));
    } else if (affine.shift) {
      step(chain_step(ChainOp::kAdd, 0, operand_of(*affine.shift)));
    } else {
      step(scalar_step(ChainOp::kMulScalar, 0, *affine.number));
    }
    chain.outputs = {value};
    const DType dtype = old->dtype;
    bias = expanded(constant(std::move(chain), std::move(operands), length, dtype), sizes,
                    channel_dim);
  }

  Round& round_;
  Graph& graph_;
  OpId chain_;
  OpId maker_;
  OpId place_;
  std::vector<int64_t> sizes_;  // of what the maker leaves
  size_t channel_dim_ = 0;
  TensorDesc result_;  // of the chain, seen with these sizes
};

}  // namespace

void fold_batch_norm(Graph& graph) {
  sweep_until_unchanged(graph, [](Round& round, OpId id) { Folder(round, id).run(); });
}

}  // namespace nimble
