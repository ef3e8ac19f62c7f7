#pragma once

#include <cstring>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "nimble/base/error.h"
#include "nimble/graph/relink.h"
#include "nimble/kernels/kernel.h"
#include "nimble/passes/rewrite.h"

// Writes small graphs by hand, and computes them by the kernels' plain loops.
namespace nimble::testing {

struct Tensor {
  MemoryId memory;
  TensorDesc desc;
};

class ProgramWriter {
 public:
  Tensor input(std::vector<int64_t> sizes) { return tensor(std::move(sizes), Role::kInput); }
  Tensor constant(std::vector<int64_t> sizes) { return tensor(std::move(sizes), Role::kExternal); }

  // An op of ours with a new, row-major result.
  Tensor op(OpAttributes attributes, const std::vector<Tensor>& inputs,
            std::vector<int64_t> sizes) {
    const Tensor result = tensor(std::move(sizes), Role::kIntermediate);
    update(std::move(attributes), inputs, result);
    return result;
  }

  // An op of ours that writes over a tensor, of which it may read the same elements.
  void update(OpAttributes attributes, const std::vector<Tensor>& inputs, const Tensor& result) {
    Op op;
    op.name = describe(attributes);
    op.attributes = std::move(attributes);
    for (const Tensor& t : inputs)
      op.operands.push_back(reading(t.memory, add_view(graph_, t.desc)));
    op.operands.push_back(writing(result.memory, add_view(graph_, result.desc)));
    op.group = static_cast<uint32_t>(graph_.ops.size());
    graph_.ops.push_back(std::move(op));
  }

  // An op of the framework that nobody knows more of.
  Tensor framework(const std::string& name, const std::vector<Tensor>& inputs,
                   std::vector<int64_t> sizes) {
    const Tensor result = op(Copy{}, inputs, std::move(sizes));
    graph_.ops.back().attributes.reset();
    graph_.ops.back().name = name;
    graph_.ops.back().call = CallId(graph_.ops.size() - 1);
    return result;
  }

  void output(const Tensor& t) {
    graph_.outputs.push_back({t.memory, add_view(graph_, t.desc)});
    graph_.memories[t.memory.index].is_output = true;
  }

  Graph finish() {
    relink(graph_);
    return std::move(graph_);
  }

 private:
  Tensor tensor(std::vector<int64_t> sizes, Role role) {
    Tensor t{MemoryId(), row_major({6, 4, "float32"}, sizes)};
    t.memory = add_memory(graph_, t.desc.end_byte(), role);
    if (role == Role::kInput) graph_.inputs.push_back({t.memory, add_view(graph_, t.desc)});
    return t;
  }

  Graph graph_;
};

// The outputs of a graph of our ops, for inputs and constants that are the same in every graph that
// came from the same program: random by memory id.
inline std::vector<std::vector<float>> evaluate(const Graph& graph) {
  std::vector<std::vector<float>> memories(graph.memories.size());
  for (size_t m = 0; m < memories.size(); ++m) {
    memories[m].assign(graph.memories[m].bytes / 4, std::nanf(""));
    const Role role = graph.memories[m].role;
    if (role == Role::kIntermediate || role == Role::kFolded) continue;
    std::mt19937 random(static_cast<unsigned>(m));
    std::uniform_real_distribution<float> number(role == Role::kInput ? -1.0f : 0.1f, 1.0f);
    for (float& value : memories[m]) value = number(random);
  }
  const auto run = [&](const Op& op) {
    NIMBLE_ASSERT(op.attributes.has_value(), op.name);
    std::vector<TensorDesc> descs;
    std::vector<void*> data;
    for (const Operand& operand : op.operands) {
      descs.push_back(graph.desc_of(operand));
      data.push_back(memories[operand.memory.index].data() + descs.back().offset);
    }
    NIMBLE_ASSERT(compute_reference(*op.attributes, descs, data.data()), op.name);
  };
  for (const Op& op : graph.constant_ops) run(op);
  for (const Op& op : graph.ops) run(op);
  std::vector<std::vector<float>> outputs;
  for (const Port& port : graph.outputs) {
    const TensorDesc& desc = graph.views[port.view.index].desc;
    std::vector<float> values;
    std::vector<int64_t> index(desc.sizes.size());
    for (int64_t i = 0; i < desc.numel(); ++i) {
      int64_t offset = desc.offset;
      for (size_t d = 0; d < index.size(); ++d) offset += index[d] * desc.strides[d];
      values.push_back(memories[port.memory.index][offset]);
      for (size_t d = index.size(); d-- > 0;) {
        if (++index[d] < desc.sizes[d]) break;
        index[d] = 0;
      }
    }
    outputs.push_back(std::move(values));
  }
  return outputs;
}

}  // namespace nimble::testing
