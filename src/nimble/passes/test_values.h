#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "nimble/base/error.h"
#include "nimble/graph/graph.h"
#include "nimble/passes/rewrite.h"

// Computes a graph in numbers that stand for what was computed: an element of a result is a hash of
// its place, the op and all that the op read, in logical order. Layouts do not change it; reading a
// wrong, stale or unwritten element does. Ops of the framework take part. Copies and concatenations
// are what they are.
namespace nimble::testing {

using Elements = std::vector<uint32_t>;

class ValueTracer {
 public:
  explicit ValueTracer(const Graph& graph) : graph_(graph), memories_(graph.memories.size()) {
    for (size_t m = 0; m < memories_.size(); ++m) {
      memories_[m].resize(graph.memories[m].bytes / 4);
      for (size_t i = 0; i < memories_[m].size(); ++i)
        memories_[m][i] = mixed(static_cast<uint32_t>(m) + 1, static_cast<uint32_t>(i));
    }
  }

  std::vector<Elements> run() {
    for (const Op& op : graph_.constant_ops) run(op);
    for (const Op& op : graph_.ops) run(op);
    std::vector<Elements> outputs;
    for (const Port& port : graph_.outputs)
      outputs.push_back(read(port.memory, graph_.views[port.view.index].desc));
    return outputs;
  }

 private:
  static uint32_t mixed(uint32_t a, uint32_t b) {
    uint32_t x = a * 0x9e3779b1U ^ (b + 0x7f4a7c15U + (a << 6) + (a >> 2));
    x ^= x >> 15;
    x *= 0x85ebca6bU;
    return x ^ (x >> 13);
  }

  template <class Visit>
  static void for_each(const TensorDesc& desc, const Visit& visit) {
    std::vector<int64_t> index(desc.sizes.size());
    for (int64_t i = 0; i < desc.numel(); ++i) {
      int64_t offset = desc.offset;
      for (size_t d = 0; d < index.size(); ++d) offset += index[d] * desc.strides[d];
      visit(offset);
      for (size_t d = index.size(); d-- > 0;) {
        if (++index[d] < desc.sizes[d]) break;
        index[d] = 0;
      }
    }
  }

  Elements read(MemoryId memory, const TensorDesc& desc) const {
    Elements elements;
    for_each(desc, [&](int64_t at) { elements.push_back(memories_[memory.index].at(at)); });
    return elements;
  }

  void write(MemoryId memory, const TensorDesc& desc, const Elements& elements) {
    NIMBLE_ASSERT(static_cast<int64_t>(elements.size()) == desc.numel());
    size_t i = 0;
    for_each(desc, [&](int64_t at) { memories_[memory.index].at(at) = elements[i++]; });
  }

  void run(const Op& op) {
    if (attributes_of<Copy>(op)) {
      write(op.operands[1].memory, graph_.desc_of(op.operands[1]),
            read(op.operands[0].memory, graph_.desc_of(op.operands[0])));
    } else if (const auto* concatenation = attributes_of<Concatenation>(op)) {
      concatenate(op, concatenation->dim);
    } else {
      hash(op);
    }
  }

  void concatenate(const Op& op, int64_t dim) {
    const Operand& result = op.operands.back();
    TensorDesc slice = graph_.desc_of(result);
    std::vector<Elements> pieces;
    for (const Operand& piece : op.operands)
      if (piece.reads) pieces.push_back(read(piece.memory, graph_.desc_of(piece)));
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].empty()) continue;
      slice.sizes[dim] = graph_.desc_of(op.operands[i]).sizes[dim];
      write(result.memory, slice, pieces[i]);
      slice.offset += slice.sizes[dim] * slice.strides[dim];
    }
  }

  void hash(const Op& op) {
    uint32_t seen = 17;
    const std::string name = op.attributes ? describe(*op.attributes) : op.name;
    for (char c : name) seen = mixed(seen, static_cast<uint8_t>(c));
    for (const Operand& operand : op.operands) {
      if (!operand.reads) continue;
      for (int64_t size : graph_.desc_of(operand).sizes)
        seen = mixed(seen, static_cast<uint32_t>(size));
      for (uint32_t element : read(operand.memory, graph_.desc_of(operand)))
        seen = mixed(seen, element);
    }
    uint32_t output = 0;
    for (const Operand& operand : op.operands) {
      if (!operand.writes) continue;
      Elements elements(static_cast<size_t>(graph_.desc_of(operand).numel()));
      ++output;
      for (size_t i = 0; i < elements.size(); ++i)
        elements[i] = mixed(mixed(seen, output), static_cast<uint32_t>(i));
      write(operand.memory, graph_.desc_of(operand), elements);
    }
  }

  const Graph& graph_;
  std::vector<Elements> memories_;
};

inline std::vector<Elements> trace_values(const Graph& graph) {
  return ValueTracer(graph).run();
}

}  // namespace nimble::testing
