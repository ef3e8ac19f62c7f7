#include "nimble/torch/framework_rewrite.h"

#include <string_view>
#include <utility>

#include "nimble/base/error.h"
#include "nimble/graph/relink.h"
#include "nimble/passes/commit_updates.h"
#include "nimble/passes/fold_batch_norm.h"
#include "nimble/passes/fold_constants.h"
#include "nimble/passes/fuse_epilogues.h"
#include "nimble/passes/rewrite.h"
#include "nimble/torch/import_ops.h"

namespace nimble {
namespace {

// Only what has a call again, whatever the passes make of it.
bool is_imported(const Recording& recording, const Graph& graph, const Op& op, bool fuse) {
  const RecordedCall& call = recording.calls[op.call.index];
  if (op.name == "aten::convolution") return true;
  if (op.name == "aten::native_batch_norm" || op.name == "aten::cudnn_batch_norm")
    return !call.arguments[5].toBool();  // training
  if (op.name == "aten::_native_batch_norm_legit_no_training" ||
      op.name == "aten::_batch_norm_no_update")
    return true;
  if (!fuse) return false;
  if (op.name == "aten::relu" || op.name == "aten::relu_") return true;
  if (op.name != "aten::add.Tensor" && op.name != "aten::add_.Tensor") return false;
  const bool plain = call.tensors.size() == 2 && call.live.empty() &&
                     call.arguments[2].isScalar() && call.arguments[2].toScalar().equal(1);
  const auto desc = [&](size_t i) { return graph.views[call.tensors[i].view.index].desc; };
  return plain && desc(0).sizes == desc(1).sizes;
}

bool is_relu(const Activation& activation) {
  return activation.kind == ActivationKind::kRelu;
}

bool is_none(const Activation& activation) {
  return activation.kind == ActivationKind::kNone;
}

std::vector<int64_t> list_of(const std::array<int64_t, 2>& pair) {
  return {pair.begin(), pair.end()};
}

TensorDesc channels_last(const TensorDesc& desc) {
  TensorDesc result = row_major(desc.dtype, desc.sizes);
  const int64_t channels = desc.sizes[1];
  const int64_t width = desc.sizes[3];
  result.strides = {channels * desc.sizes[2] * width, 1, width * channels, channels};
  return result;
}

bool lies_as(const TensorDesc& desc, const TensorDesc& other) {
  for (size_t d = 0; d < desc.sizes.size(); ++d)
    if (desc.sizes[d] != 1 && desc.strides[d] != other.strides[d]) return false;
  return true;
}

// Says in calls of the framework's what ops of ours compute.
class Lowering {
 public:
  Lowering(Graph& graph, Recording& recording, const FrameworkRewrite& rewrite)
      : graph_(graph), recording_(recording), rewrite_(rewrite) {}

  void run() {
    std::vector<Op> ops = std::move(graph_.ops);
    graph_.ops.clear();
    for (Op& op : ops) {
      if (op.call.valid())
        graph_.ops.push_back(std::move(op));
      else if (const auto* convolution = attributes_of<Convolution>(op))
        lower_convolution(op, *convolution);
      else if (const auto* chain = attributes_of<Chain>(op))
        lower_chain(op, *chain);
      else
        refuse(op);
    }
    for (size_t i = 0; i < graph_.ops.size(); ++i) graph_.ops[i].group = static_cast<uint32_t>(i);
    relink(graph_);
    give_buffers();
  }

 private:
  // A tensor argument and its position.
  struct Argument {
    uint32_t position;
    Operand operand;
  };

  [[noreturn]] static void refuse(const Op& op) {
    throw Refused(message(op.name, " has no call of the framework's as it was rewritten"));
  }

  // Passes do not care for the strides of dims of size 1. The framework does: it looks at them to
  // tell layouts, and a result that has others than were expected is copied.
  Operand as_the_framework_has_it(Operand operand) {
    const TensorDesc desc = graph_.desc_of(operand);
    std::vector<TensorDesc> layouts = {row_major(desc.dtype, desc.sizes)};
    if (desc.sizes.size() == 4) {
      layouts.push_back(channels_last(desc));
      if (rewrite_.channels_last) std::swap(layouts[0], layouts[1]);
    }
    for (const TensorDesc& layout : layouts) {
      if (!lies_as(desc, layout)) continue;
      TensorDesc same = desc;
      same.strides = layout.strides;
      operand.view = add_view(graph_, std::move(same));
      break;
    }
    return operand;
  }

  void call(const Op& from, const char* name, const char* overload,
            std::vector<c10::IValue> arguments, std::vector<Argument> tensors, Operand result) {
    for (Argument& tensor : tensors) tensor.operand = as_the_framework_has_it(tensor.operand);
    result = as_the_framework_has_it(result);
    RecordedCall made{c10::Dispatcher::singleton().findSchemaOrThrow(name, overload),
                      std::move(arguments),
                      {},
                      {}};
    Op op;
    op.name = *overload ? message(name, ".", overload) : name;
    op.module = from.module;
    op.source = from.source;
    for (const Argument& tensor : tensors) {
      op.operands.push_back(tensor.operand);
      TensorSlot slot;
      slot.position = tensor.position;
      slot.view = tensor.operand.view;
      made.tensors.push_back(slot);
    }
    op.operands.push_back(result);
    ResultSlot slot;
    slot.view = result.view;
    made.results.push_back(slot);
    op.call = CallId(recording_.calls.size());
    recording_.calls.push_back(std::move(made));
    graph_.ops.push_back(std::move(op));
  }

  // What lies between two calls, like the result of the last; as it is written.
  Operand between(const Operand& result) {
    const TensorDesc desc = row_major(graph_.desc_of(result).dtype, graph_.desc_of(result).sizes);
    return writing(add_memory(graph_, desc.end_byte()), add_view(graph_, desc));
  }
  Operand read_again(const Operand& written) {
    return reading(written.memory, add_view(graph_, graph_.desc_of(written)));
  }

  void lower_convolution(const Op& op, const Convolution& convolution) {
    const Epilogue& epilogue = convolution.epilogue;
    const bool known = (is_none(epilogue.first) || is_relu(epilogue.first)) &&
                       (is_none(epilogue.last) || is_relu(epilogue.last));
    if (!known || convolution.relu_input || convolution.scale_input) refuse(op);
    Operand weight = op.operands[1];
    if (rewrite_.channels_last && graph_.desc_of(weight).sizes.size() == 4)
      weight = in_channels_last(op, weight);
    std::vector<Argument> tensors = {{0, op.operands[0]}, {1, weight}};
    const Operand& result = op.operands.back();
    const auto geometry = [&](std::vector<c10::IValue> arguments) {
      arguments.emplace_back(list_of(convolution.stride));
      arguments.emplace_back(list_of(convolution.padding));
      arguments.emplace_back(list_of(convolution.dilation));
      return arguments;
    };
    const auto bias_at = [&](uint32_t position) {
      if (convolution.bias) tensors.push_back({position, op.operands[2]});
    };
    const bool fuse = rewrite_.fuse && convolution.groups == 1;
    if (fuse && epilogue.add && is_none(epilogue.first) && is_relu(epilogue.last)) {
      tensors.push_back({2, op.operands[convolution.addend_operand()]});
      bias_at(4);
      std::vector<c10::IValue> arguments = geometry(std::vector<c10::IValue>(5));
      arguments.emplace_back(convolution.groups);
      call(op, "aten::cudnn_convolution_add_relu", "", std::move(arguments), tensors, result);
      return;
    }
    bias_at(2);
    std::vector<c10::IValue> arguments = geometry(std::vector<c10::IValue>(3));
    const bool fused_relu = fuse && is_relu(epilogue.first);
    const int steps = (!fused_relu && is_relu(epilogue.first)) + epilogue.add +
                      is_relu(epilogue.last);  // that follow
    int left = steps;
    Operand made = left > 0 ? between(result) : result;
    if (fused_relu) {
      arguments.emplace_back(convolution.groups);
      call(op, "aten::cudnn_convolution_relu", "", std::move(arguments), tensors, made);
    } else {
      arguments.emplace_back(false);
      arguments.emplace_back(std::vector<int64_t>{0, 0});
      arguments.emplace_back(convolution.groups);
      call(op, "aten::convolution", "", std::move(arguments), tensors, made);
    }
    const auto follow = [&](const auto& emit) {
      const Operand input = read_again(made);
      made = --left > 0 ? between(result) : result;
      emit(input, made);
    };
    const auto relu = [&](const Operand& input, const Operand& output) {
      call(op, "aten::relu", "", {c10::IValue()}, {{0, input}}, output);
    };
    if (!fused_relu && is_relu(epilogue.first)) follow(relu);
    if (epilogue.add)
      follow([&](const Operand& input, const Operand& output) {
        add(op, input, op.operands[convolution.addend_operand()], output);
      });
    if (is_relu(epilogue.last)) follow(relu);
  }

  void add(const Op& op, const Operand& a, const Operand& b, const Operand& result) {
    call(op, "aten::add", "Tensor", {c10::IValue(), c10::IValue(), c10::IValue(1)},
         {{0, a}, {1, b}}, result);
  }

  void lower_chain(const Op& op, const Chain& chain) {
    if (chain.steps.size() != 1 || chain.outputs.size() != 1) refuse(op);
    const ChainStep& step = chain.steps[0];
    const auto operand = [&](int i) { return op.operands[static_cast<size_t>(i)]; };
    const Operand& result = op.operands.back();
    if (step.op == ChainOp::kActivation && is_relu(step.activation))
      call(op, "aten::relu", "", {c10::IValue()}, {{0, operand(step.x)}}, result);
    else if (step.op == ChainOp::kAdd && step.x != step.y)
      add(op, operand(step.x), operand(step.y), result);
    else if (step.op == ChainOp::kMulAdd && step.x != step.y && step.x != step.z)
      call(op, "aten::addcmul", "", {c10::IValue(), c10::IValue(), c10::IValue(), c10::IValue(1)},
           {{0, operand(step.z)}, {1, operand(step.x)}, {2, operand(step.y)}}, result);
    else
      refuse(op);
  }

  // A constant in another layout.
  Operand in_channels_last(const Op& op, const Operand& weight) {
    if (!Uses(graph_).is_constant(weight.memory)) return weight;
    const TensorDesc desc = channels_last(graph_.desc_of(weight));
    const MemoryId memory = add_memory(graph_, desc.end_byte(), Role::kFolded);
    Op copy;
    copy.name = op.name + " in channels_last";
    copy.module = op.module;
    copy.source = op.source;
    copy.attributes = Copy{};
    copy.operands = {reading(weight.memory, weight.view), writing(memory, add_view(graph_, desc))};
    graph_.constant_ops.push_back(std::move(copy));
    return reading(memory, add_view(graph_, desc));
  }

  // Memory that passes have added becomes a buffer of the recording; that of folded constants is
  // there from now on.
  void give_buffers() {
    for (Memory& memory : graph_.memories) {
      const bool folded = memory.role == Role::kFolded;
      if (memory.buffer.valid() && !folded) continue;
      memory.buffer = BufferId(recording_.trace.buffers.size());
      if (folded) memory.role = Role::kConstant;
      Buffer buffer;
      buffer.bytes = memory.bytes;
      buffer.role = memory.role;
      recording_.trace.buffers.push_back(buffer);
      recording_.devices.push_back(recording_.device);
      recording_.external_tensors.emplace_back();
      recording_.storages.emplace_back();
      if (!folded) continue;
      const auto options = at::TensorOptions().dtype(at::kByte).device(recording_.device);
      recording_.storages.back() =
          at::empty({static_cast<int64_t>(memory.bytes)}, options).storage();
    }
    for (const auto* ops : {&graph_.ops, &graph_.constant_ops})
      for (const Op& op : *ops)
        for (const Operand& operand : op.operands)
          graph_.views[operand.view.index].buffer =
              graph_.views[operand.view.index].buffer.valid()
                  ? graph_.views[operand.view.index].buffer
                  : graph_.memories[operand.memory.index].buffer;
    recording_.trace.views = graph_.views;
  }

  Graph& graph_;
  Recording& recording_;
  const FrameworkRewrite& rewrite_;
};

}  // namespace

std::unique_ptr<Plan> rewrite_framework_calls(const Plan& recorded,
                                              const FrameworkRewrite& rewrite) {
  Graph graph = import_ops(recorded.recording, recorded.graph, [&](const Op& op) {
    return is_imported(recorded.recording, recorded.graph, op, rewrite.fuse);
  });
  fold_constants(graph);
  fold_batch_norm(graph);
  if (rewrite.fuse) fuse_epilogues(graph);
  commit_updates(graph);
  if (graph.ops.size() >= recorded.graph.ops.size() && !rewrite.channels_last) return nullptr;
  auto recording = std::make_shared<Recording>(recorded.recording);
  Lowering(graph, *recording, rewrite).run();
  return std::make_unique<Plan>(std::move(recording), std::move(graph));
}

}  // namespace nimble
