#include "nimble/passes/choose_layout.h"

#include <algorithm>
#include <utility>

#include "nimble/base/error.h"
#include "nimble/graph/relink.h"
#include "nimble/passes/images.h"
#include "nimble/passes/rewrite.h"

namespace nimble {
namespace {

enum class Order { kNone, kChannelsLast, kOther };  // kNone: it lies both ways, or is no image

Order order_of(const TensorDesc& desc) {
  if (desc.sizes.size() != 4 || desc.sizes[1] <= 1 || desc.numel() == 0) return Order::kNone;
  bool channels_first = false;
  bool has_pixels = false;
  for (size_t d = 0; d < 4; ++d) {
    if (desc.sizes[d] == 1) continue;
    if (desc.strides[d] == 0) return Order::kNone;
    has_pixels |= d >= 2;
    channels_first |= d >= 2 && desc.strides[d] < desc.strides[1];
  }
  if (!has_pixels) return Order::kNone;
  return channels_first ? Order::kOther : Order::kChannelsLast;
}

// Ops that take any strides and do best to lay out their result like their inputs.
bool follows_inputs(const Op& op) {
  return attributes_of<Chain>(op) || attributes_of<Reduce>(op) || attributes_of<Softmax>(op) ||
         attributes_of<Copy>(op) || attributes_of<Pad>(op) || attributes_of<Concatenation>(op);
}

bool contains(const std::vector<size_t>& list, size_t item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

//   1. For each memory, the image that fills it, as some op sees it.
//   2. In program order, decide for each memory of our own whether to lay it out anew: image ops
//      want it for their results, others do as their inputs.
//   3. Change the views, and put copies where a layout cannot be changed.
class LayoutChooser {
 public:
  explicit LayoutChooser(Graph& graph)
      : graph_(graph),
        uses_(graph),
        images_(graph.memories.size()),
        relaid_(graph.memories.size()) {}

  bool run() {
    if (!find_images()) return false;
    for (const Op& op : graph_.ops) decide(op);
    std::vector<Op> ops = std::move(graph_.ops);
    graph_.ops.clear();
    for (Op& op : ops) rewrite(std::move(op));
    return changed_;
  }

 private:
  // The same contents elsewhere, until somebody writes the original.
  struct CopiedLayout {
    Relayout layout;
    MemoryId memory;
  };

  bool find_images() {
    bool any = false;
    for (bool whole : {true, false}) {
      for (const Op& op : graph_.ops) {
        for (size_t i : image_operands(graph_, op)) {
          any = true;
          note_image(op.operands[i], whole);
        }
      }
      if (!any) return false;
      for (const Op& op : graph_.ops)
        if (follows_inputs(op))
          for (const Operand& operand : op.operands) note_image(operand, whole);
    }
    return true;
  }

  // The image that fills the memory: the operand itself, or what it must be a slice of.
  void note_image(const Operand& operand, bool whole) {
    TensorDesc desc = graph_.desc_of(operand);
    const auto bytes = static_cast<int64_t>(graph_.memories[operand.memory.index].bytes);
    auto& image = images_[operand.memory.index];
    if (image || desc.sizes.size() != 4 || desc.numel() == 0) return;
    if (!whole) {
      const int64_t channel = desc.sizes[0] * desc.sizes[2] * desc.sizes[3] * desc.dtype.bytes;
      if (bytes % channel != 0) return;
      std::vector<int64_t> sizes = desc.sizes;
      sizes[1] = bytes / channel;
      const TensorDesc all = row_major(desc.dtype, sizes);
      for (size_t d = 0; d < 4; ++d)
        if (desc.sizes[d] != 1 && desc.strides[d] != all.strides[d]) return;
      desc = all;
    }
    if (desc.offset == 0 && desc.is_dense() && desc.end_byte() == bytes) image = desc;
  }

  void decide(const Op& op) {
    if (!op.attributes) return;
    const std::vector<size_t> images = image_operands(graph_, op);
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const MemoryId memory = op.operands[i].memory;
      if (!op.operands[i].writes || relaid_[memory.index] || !images_[memory.index]) continue;
      const TensorDesc& from = *images_[memory.index];
      if (order_of(from) != Order::kOther) continue;
      if (!contains(images, i) && !wants_as_inputs(op, memory)) continue;
      const Relayout layout{from, channels_last(from.dtype, from.sizes)};
      if (!can_lay_out(memory, layout)) continue;
      relaid_[memory.index] = graph_.memories[memory.index].relayout = layout;
    }
  }

  bool wants_as_inputs(const Op& op, MemoryId result) const {
    if (!follows_inputs(op)) return false;
    bool channels_last = false;
    bool other = false;
    for (const Operand& operand : op.operands) {
      if (!operand.reads) continue;
      const Order order = order_of(current_view(operand));
      channels_last |= order == Order::kChannelsLast;
      other |= order == Order::kOther;
    }
    // Elementwise ops are best with one layout for all; the others are copies at heart and can
    // change it on the way.
    if (attributes_of<Chain>(op)) return channels_last || (!other && image_op_reads(result));
    return channels_last ? some_reader_follows(result) : image_op_reads(result);
  }

  bool image_op_reads(MemoryId memory) const {
    for (OpId reader : uses_.readers(memory))
      for (size_t i : image_operands(graph_, graph_.ops[reader.index]))
        if (graph_.ops[reader.index].operands[i].memory == memory) return true;
    return false;
  }

  bool some_reader_follows(MemoryId memory) const {
    const TensorDesc& from = *images_[memory.index];
    const TensorDesc to = channels_last(from.dtype, from.sizes);
    for (OpId reader : uses_.readers(memory)) {
      const Op& op = graph_.ops[reader.index];
      if (!op.attributes) continue;
      for (const Operand& operand : op.operands)
        if (operand.memory == memory && moved_view(graph_.desc_of(operand), from, to)) return true;
    }
    return false;
  }

  // Whether all writers can write there. Readers that cannot follow get a copy of contents that
  // do not change; else all must follow.
  bool can_lay_out(MemoryId memory, const Relayout& layout) const {
    const Memory& described = graph_.memories[memory.index];
    if (described.role != Role::kIntermediate || described.is_output) return false;
    for (OpId writer : uses_.writers(memory)) {
      const Op& op = graph_.ops[writer.index];
      const std::vector<size_t> images = image_operands(graph_, op);
      for (size_t i = 0; i < op.operands.size(); ++i) {
        if (op.operands[i].memory != memory) continue;
        if (!op.attributes) return false;
        const auto moved = moved_view(graph_.desc_of(op.operands[i]), layout.from, layout.to);
        if (!moved || (op.operands[i].writes && contains(images, i) && !as_image(*moved)))
          return false;
      }
    }
    if (uses_.sole_writer(memory).valid()) return true;
    for (OpId reader : uses_.readers(memory)) {
      const Op& op = graph_.ops[reader.index];
      for (const Operand& operand : op.operands)
        if (operand.memory == memory &&
            (!op.attributes || !moved_view(graph_.desc_of(operand), layout.from, layout.to)))
          return false;
    }
    return true;
  }

  TensorDesc current_view(const Operand& operand) const {
    const TensorDesc& desc = graph_.desc_of(operand);
    const auto& layout = relaid_[operand.memory.index];
    if (!layout) return desc;
    return moved_view(desc, layout->from, layout->to).value_or(desc);
  }

  void rewrite(Op op) {
    move_views(op);
    std::vector<Op> behind;
    std::vector<std::pair<MemoryId, CopiedLayout>> fresh;
    if (op.attributes) {
      for (size_t i : laid_out_operands(op)) {
        Operand& operand = op.operands[i];
        const TensorDesc desc = graph_.desc_of(operand);
        if (const auto image = as_image(desc)) {
          set_view(operand, *image);
        } else if (takes_crop(op, i)) {
          continue;
        } else if (operand.reads && !operand.writes) {
          read_image_copy(op, operand);
        } else if (operand.writes && !operand.reads) {
          const Relayout layout{desc, channels_last(desc.dtype, desc.sizes)};
          const MemoryId memory = add_memory(graph_, layout.to.end_byte());
          const Operand target = operand;
          operand = writing(memory, add_view(graph_, layout.to));
          behind.push_back(copy_op(op, reading(memory, operand.view), target));
          fresh.push_back({target.memory, {layout, memory}});
        }
      }
    }
    for (const Operand& operand : op.operands)
      if (operand.writes) copies_of(operand.memory).clear();
    graph_.ops.push_back(std::move(op));
    for (Op& copy : behind) {
      copies_of(copy.operands[1].memory).clear();
      graph_.ops.push_back(std::move(copy));
      changed_ = true;
    }
    for (auto& [memory, copy] : fresh) copies_of(memory).push_back(std::move(copy));
  }

  // An image op may do with rows of pixels that do not follow each other, if that is all.
  bool takes_crop(const Op& op, size_t operand) const {
    std::vector<TensorDesc> views;
    for (const Operand& each : op.operands) views.push_back(graph_.desc_of(each));
    if (attributes_of<Chain>(op) || !has_channels_last(views[operand])) return false;
    for (size_t i : image_operands(graph_, op))
      if (!has_channels_last(views[i])) views[i] = channels_last(views[i].dtype, views[i].sizes);
    return has_kernel(op, views);
  }

  // Follows the memories that were laid out anew.
  void move_views(Op& op) {
    std::vector<std::optional<TensorDesc>> moved(op.operands.size());
    std::vector<TensorDesc> views;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const Operand& operand = op.operands[i];
      const auto& layout = relaid_[operand.memory.index];
      if (layout && op.attributes)
        moved[i] = moved_view(graph_.desc_of(operand), layout->from, layout->to);
      views.push_back(moved[i].value_or(graph_.desc_of(operand)));
    }
    const bool is_image_op = !image_operands(graph_, op).empty();
    const bool follows = !op.attributes || is_image_op || kernels_take(graph_, op, views);
    for (size_t i = 0; i < op.operands.size(); ++i) {
      Operand& operand = op.operands[i];
      if (!relaid_[operand.memory.index]) continue;
      if (moved[i] && (follows || operand.writes)) {
        set_view(operand, *moved[i]);
      } else {
        NIMBLE_ASSERT(!operand.writes, op.name);
        read_original_layout(op, operand);
      }
    }
  }

  // The operands that are to be images. An elementwise op has all of its tensors in one layout.
  std::vector<size_t> laid_out_operands(const Op& op) const {
    if (!attributes_of<Chain>(op)) return image_operands(graph_, op);
    bool channels_last = false;
    std::vector<size_t> others;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const Order order = order_of(graph_.desc_of(op.operands[i]));
      channels_last |= order == Order::kChannelsLast;
      if (order == Order::kOther) others.push_back(i);
    }
    return channels_last ? others : std::vector<size_t>();
  }

  void read_image_copy(const Op& reader, Operand& operand) {
    const TensorDesc desc = graph_.desc_of(operand);
    auto& copies = copies_of(operand.memory);
    for (const CopiedLayout& copy : copies) {
      const auto moved = moved_view(desc, copy.layout.from, copy.layout.to);
      if (!moved || !as_image(*moved)) continue;
      operand = reading(copy.memory, add_view(graph_, *as_image(*moved)));
      return;
    }
    const Relayout layout{desc, channels_last(desc.dtype, desc.sizes)};
    const Operand source = operand;
    operand = reading(add_copy(reader, source, layout), add_view(graph_, layout.to));
    copies.push_back({layout, operand.memory});
  }

  // The view stays, on a copy of the memory with the layout that was recorded.
  void read_original_layout(const Op& reader, Operand& operand) {
    const Relayout& layout = *relaid_[operand.memory.index];
    const Relayout back{layout.to, layout.from};
    auto& copies = copies_of(operand.memory);
    auto copy = std::find_if(copies.begin(), copies.end(), [&](const CopiedLayout& c) {
      return c.layout.from == back.from && c.layout.to == back.to;
    });
    if (copy == copies.end()) {
      const Operand source = reading(operand.memory, add_view(graph_, back.from));
      const MemoryId memory = add_copy(reader, source, back);
      copies.push_back({back, memory});
      copy = copies.end() - 1;
    }
    operand = reading(copy->memory, operand.view);
  }

  // Copies in front of a reader; what is constant, ahead of time.
  MemoryId add_copy(const Op& reader, const Operand& source, const Relayout& layout) {
    changed_ = true;
    const bool constant = source.memory.index < images_.size() && uses_.is_constant(source.memory);
    const MemoryId memory =
        add_memory(graph_, layout.to.end_byte(), constant ? Role::kFolded : Role::kIntermediate);
    Op copy = copy_op(reader, source, writing(memory, add_view(graph_, layout.to)));
    (constant ? graph_.constant_ops : graph_.ops).push_back(std::move(copy));
    return memory;
  }

  static Op copy_op(const Op& beside, const Operand& source, const Operand& target) {
    Op copy;
    copy.name = "layout of " + beside.name;
    copy.module = beside.module;
    copy.source = beside.source;
    copy.attributes = Copy{};
    copy.operands = {reading(source.memory, source.view), writing(target.memory, target.view)};
    return copy;
  }

  std::vector<CopiedLayout>& copies_of(MemoryId memory) {
    if (copies_.size() <= memory.index) copies_.resize(memory.index + 1);  // one that was added
    return copies_[memory.index];
  }

  void set_view(Operand& operand, const TensorDesc& desc) {
    if (graph_.desc_of(operand) == desc) return;
    operand.view = add_view(graph_, desc);
    changed_ = true;
  }

  Graph& graph_;
  const Uses uses_;  // of the graph as it came; by its memories, as the next
  std::vector<std::optional<TensorDesc>> images_;
  std::vector<std::optional<Relayout>> relaid_;
  std::vector<std::vector<CopiedLayout>> copies_;
  bool changed_ = false;
};

}  // namespace

void choose_layout(Graph& graph) {
  if (LayoutChooser(graph).run()) relink(graph);
}

}  // namespace nimble
