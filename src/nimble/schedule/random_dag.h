#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "nimble/graph/graph.h"
#include "nimble/schedule/dag.h"
#include "nimble/schedule/stream_assignment.h"
#include "nimble/schedule/verify.h"

// Random inputs for tests: DAGs of many shapes, and programs with every kind of hazard. Long for a
// header, since the tests of several folders use it and no library should contain it.

namespace nimble::testing {

using RandomEdges = std::vector<std::pair<uint32_t, uint32_t>>;

// A number in [low, high].
inline size_t random_between(std::mt19937& rng, size_t low, size_t high) {
  return low + rng() % (high - low + 1);
}

inline bool random_chance(std::mt19937& rng, double probability) {
  return rng() < probability * 4294967296.0;
}

// Layers of random width; every node follows one or more of the layer before, as in a network.
inline RandomEdges random_layers(std::mt19937& rng, size_t size) {
  RandomEdges edges;
  size_t begin = 0;
  size_t end = std::min(size, random_between(rng, 1, 6));
  while (end < size) {
    const size_t next_end = std::min(size, end + random_between(rng, 1, 6));
    for (size_t node = end; node < next_end; ++node) {
      const size_t fan_in = random_between(rng, 1, 3);
      for (size_t i = 0; i < fan_in; ++i)
        edges.emplace_back(random_between(rng, begin, end - 1), node);
      if (begin > 0 && random_chance(rng, 0.2))  // a skip connection
        edges.emplace_back(random_between(rng, 0, begin - 1), node);
    }
    begin = end;
    end = next_end;
  }
  return edges;
}

// Fork and join, nested: nodes [begin, end) as one block, either in series or in parallel.
inline void random_series_parallel(std::mt19937& rng, uint32_t begin, uint32_t end,
                                   RandomEdges& edges) {
  const uint32_t size = end - begin;
  if (size <= 1) return;
  if (size < 4 || random_chance(rng, 0.4)) {
    const auto middle = static_cast<uint32_t>(random_between(rng, begin + 1, end - 1));
    random_series_parallel(rng, begin, middle, edges);
    random_series_parallel(rng, middle, end, edges);
    edges.emplace_back(middle - 1, middle);
    return;
  }
  uint32_t branch = begin + 1;
  while (branch < end - 1) {
    const auto branch_end = static_cast<uint32_t>(random_between(rng, branch + 1, end - 1));
    edges.emplace_back(begin, branch);
    random_series_parallel(rng, branch, branch_end, edges);
    edges.emplace_back(branch_end - 1, end - 1);
    branch = branch_end;
  }
}

// Every pair is an edge with the same probability.
inline RandomEdges random_pairs(std::mt19937& rng, size_t size, double probability) {
  RandomEdges edges;
  for (uint32_t from = 0; from < size; ++from)
    for (uint32_t to = from + 1; to < size; ++to)
      if (random_chance(rng, probability)) edges.emplace_back(from, to);
  return edges;
}

// Parallel chains with a few edges between them.
inline RandomEdges random_chains(std::mt19937& rng, size_t size) {
  RandomEdges edges;
  std::vector<uint32_t> ends(random_between(rng, 1, 8), UINT32_MAX);
  for (uint32_t node = 0; node < size; ++node) {
    uint32_t& end = ends[rng() % ends.size()];
    if (end != UINT32_MAX) edges.emplace_back(end, node);
    end = node;
    if (node > 0 && random_chance(rng, 0.1))
      edges.emplace_back(random_between(rng, 0, node - 1), node);
  }
  return edges;
}

// 1 to `max_nodes` nodes.
inline Dag random_dag(std::mt19937& rng, size_t max_nodes) {
  const size_t size = random_between(rng, 1, max_nodes);
  RandomEdges edges;
  switch (rng() % 5) {
    case 0:
      edges = random_layers(rng, size);
      break;
    case 1:
      random_series_parallel(rng, 0, static_cast<uint32_t>(size), edges);
      break;
    case 2:
      edges = random_pairs(rng, size, 1.5 / static_cast<double>(size));
      break;
    case 3:
      edges = random_pairs(rng, size, 0.1 + 0.1 * static_cast<double>(rng() % 8));
      break;
    default:
      edges = random_chains(rng, size);
  }
  return make_dag(size, edges);
}

// Nodes dealt to streams at random. Their order keeps every edge but need not be the numbering:
// a node is drawn from all that are ready.
inline StreamAssignment random_assignment(std::mt19937& rng, const Dag& dag, size_t max_streams) {
  StreamAssignment assignment;
  assignment.streams.resize(random_between(rng, 1, max_streams));
  std::vector<size_t> missing(dag.size(), 0);
  for (const auto& successors : dag.successors)
    for (uint32_t to : successors) ++missing[to];
  std::vector<uint32_t> ready;
  for (uint32_t node = 0; node < dag.size(); ++node)
    if (missing[node] == 0) ready.push_back(node);
  while (!ready.empty()) {
    std::swap(ready[rng() % ready.size()], ready.back());
    const uint32_t node = ready.back();
    ready.pop_back();
    assignment.streams[rng() % assignment.streams.size()].push_back(node);
    for (uint32_t to : dag.successors[node])
      if (--missing[to] == 0) ready.push_back(to);
  }
  std::erase_if(assignment.streams, [](const auto& stream) { return stream.empty(); });
  return assignment;
}

// Times of very different size, some of them equal, some zero.
inline std::vector<double> random_costs(std::mt19937& rng, size_t size) {
  std::vector<double> costs(size);
  for (double& cost : costs) {
    const double scale = random_chance(rng, 0.3) ? 100 : 1;
    cost = 100.0 * scale * static_cast<double>(rng() % 20);
  }
  return costs;
}

// Whether two ops must keep their order: they touch common bytes of a memory and one of them
// writes, or both draw from a generator.
inline bool have_hazard(const Graph& graph, const Op& first, const Op& second) {
  for (const Operand& a : first.operands) {
    for (const Operand& b : second.operands) {
      if (a.memory != b.memory) continue;
      if (graph.memories[a.memory.index].role == Role::kGenerator) return true;
      if (!a.writes && !b.writes) continue;
      if (have_common_byte(graph.bytes_touched(a), graph.bytes_touched(b))) return true;
    }
  }
  return false;
}

// Writes a random program, one op after the other.
class RandomProgram {
 public:
  explicit RandomProgram(std::mt19937& rng) : rng_(rng) {
    add_buffers(Role::kInput, 2);
    add_buffers(Role::kExternal, 3);
    add_buffers(Role::kConstant, 1);
    generator_ = add_memory(Role::kGenerator, BufferId(buffers_++), 0);
    add_value(generator_, OpId());
    for (const Live& buffer : live_)
      if (graph_.memories[buffer.memory.index].role == Role::kInput)
        graph_.inputs.push_back({buffer.memory, whole_view(buffer)});
  }

  Graph write(size_t op_count) {
    for (size_t i = 0; i < op_count; ++i) add_op();
    for (const Live& buffer : live_) {
      Memory& memory = graph_.memories[buffer.memory.index];
      if (memory.role != Role::kIntermediate || !random_chance(rng_, 0.1)) continue;
      memory.is_output = true;
      graph_.outputs.push_back({buffer.memory, whole_view(buffer)});
    }
    for (uint32_t before = 0; before < graph_.ops.size(); ++before)
      for (uint32_t after = before + 1; after < graph_.ops.size(); ++after)
        if (have_hazard(graph_, graph_.ops[before], graph_.ops[after]))
          graph_.edges.push_back({OpId(before), OpId(after)});
    return std::move(graph_);
  }

 private:
  static constexpr int64_t kElementBytes = 4;

  // A buffer as it is now.
  struct Live {
    BufferId buffer;
    MemoryId memory;
    int64_t elements = 0;
  };

  void add_buffers(Role role, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const int64_t elements = random_elements();
      const BufferId buffer(buffers_++);
      const MemoryId memory = add_memory(role, buffer, elements * kElementBytes);
      live_.push_back({buffer, memory, elements});
      add_value(memory, OpId());
    }
  }

  void add_op() {
    const OpId op(graph_.ops.size());
    Op& added = graph_.ops.emplace_back();
    added.name = "random::op" + std::to_string(op.index);
    added.module = "block" + std::to_string(op.index / 8);
    const size_t reads = random_between(rng_, 0, 3);
    for (size_t i = 0; i < reads; ++i) read(op, recent_buffer());
    if (random_chance(rng_, 0.05)) draw_random_numbers(op);

    const size_t kind = rng_() % 10;
    if (kind < 6) {
      const Live made{BufferId(buffers_++), MemoryId(), random_elements()};
      live_.push_back(made);
      overwrite(op, live_.size() - 1);
    } else if (const size_t target = recent_buffer(); !is_writable(target)) {
      read(op, target);
    } else if (kind == 6 && !uses(op, live_[target].memory)) {
      overwrite(op, target);
    } else if (kind <= 7) {
      update(op, target, whole_view(live_[target]), true);
    } else {
      update(op, target, random_view(live_[target]), random_chance(rng_, 0.5));
    }
    if (random_chance(rng_, 0.3)) touch_parts_only(op);
  }

  // Makes it one part of an op: of what its views cover, it touches only a random window.
  void touch_parts_only(OpId op) {
    for (Operand& operand : graph_.ops[op.index].operands) {
      // A write that starts a value has to write it all.
      if (operand.memory == generator_ || (operand.writes && operand.after != operand.before))
        continue;
      const ByteSet whole = graph_.bytes_touched(operand);
      const int64_t step = whole.period > 0 ? whole.period : kElementBytes;
      const int64_t last = whole.period > 0 ? whole.width : kElementBytes;
      if (whole.empty()) continue;
      const auto steps = static_cast<size_t>((whole.end - whole.begin - last) / step + 1);
      const auto first = static_cast<int64_t>(rng_() % steps);
      const auto count = static_cast<int64_t>(random_between(rng_, 1, steps - first));
      ByteSet part = whole;
      part.begin += first * step;
      part.end = part.begin + (count - 1) * step + last;
      operand.part_bytes = part;
    }
  }

  void read(OpId op, size_t target) {
    const Live& buffer = live_[target];
    const ViewId view = random_chance(rng_, 0.6) ? whole_view(buffer) : random_view(buffer);
    const ValueId value = current_value(buffer.memory);
    add_reader(value, op);
    graph_.ops[op.index].operands.push_back({value, ValueId(), buffer.memory, view, true, false});
  }

  void draw_random_numbers(OpId op) {
    const ValueId before = current_value(generator_);
    add_reader(before, op);
    TensorDesc nothing{.dtype = float32(), .sizes = {0}, .strides = {1}};
    const ViewId view = add_view(graph_.memories[generator_.index].buffer, std::move(nothing));
    const ValueId after = add_value(generator_, op);
    graph_.ops[op.index].operands.push_back({before, after, generator_, view, true, true});
  }

  // Writes all of a buffer that the op does not read: new memory, if it is ours to plan.
  void overwrite(OpId op, size_t target) {
    Live& buffer = live_[target];
    const bool is_new = !buffer.memory.valid();
    const bool ours = is_new || graph_.memories[buffer.memory.index].role == Role::kIntermediate;
    if (ours) {
      buffer.memory =
          add_memory(Role::kIntermediate, buffer.buffer, buffer.elements * kElementBytes);
    }
    const ValueId before = ours ? ValueId() : current_value(buffer.memory);
    const ValueId after = add_value(buffer.memory, op);
    graph_.ops[op.index].operands.push_back(
        {before, after, buffer.memory, whole_view(buffer), false, true});
  }

  // Changes a buffer in place. Only a write to all of it makes a new value.
  void update(OpId op, size_t target, ViewId view, bool reads) {
    const Live& buffer = live_[target];
    const ValueId before = current_value(buffer.memory);
    if (reads) add_reader(before, op);
    const bool covers = graph_.views[view.index].desc.numel() == buffer.elements;
    const ValueId after = covers ? add_value(buffer.memory, op) : before;
    graph_.ops[op.index].operands.push_back({before, after, buffer.memory, view, reads, true});
  }

  size_t recent_buffer() {
    const size_t window =
        random_chance(rng_, 0.7) ? std::min<size_t>(live_.size(), 8) : live_.size();
    return live_.size() - 1 - rng_() % window;
  }

  bool uses(OpId op, MemoryId memory) const {
    const auto& operands = graph_.ops[op.index].operands;
    return std::any_of(operands.begin(), operands.end(),
                       [&](const Operand& operand) { return operand.memory == memory; });
  }

  bool is_writable(size_t target) const {
    const Role role = graph_.memories[live_[target].memory.index].role;
    return role == Role::kIntermediate || role == Role::kExternal;
  }

  int64_t random_elements() {
    return static_cast<int64_t>(random_chance(rng_, 0.3) ? random_between(rng_, 1, 1024)
                                                         : random_between(rng_, 1, 64));
  }

  static DType float32() { return {.code = 6, .bytes = kElementBytes, .name = "float32"}; }

  ViewId add_view(BufferId buffer, TensorDesc desc) {
    graph_.views.push_back({buffer, std::move(desc)});
    return ViewId(graph_.views.size() - 1);
  }

  ViewId whole_view(const Live& buffer) {
    TensorDesc desc{.dtype = float32(), .sizes = {buffer.elements}, .strides = {1}};
    return add_view(buffer.buffer, std::move(desc));
  }

  // Some channels of an image: [pixels, channels], sliced in both.
  ViewId random_channels(const Live& buffer) {
    const auto channels = static_cast<int64_t>(random_between(rng_, 2, 8));
    const int64_t pixels = buffer.elements / channels;
    const auto first_pixel = static_cast<int64_t>(rng_() % pixels);
    const auto first_channel = static_cast<int64_t>(rng_() % channels);
    const auto size_up_to = [&](int64_t most) {
      return static_cast<int64_t>(random_between(rng_, 1, most));
    };
    TensorDesc desc{
        .dtype = float32(),
        .sizes = {size_up_to(pixels - first_pixel), size_up_to(channels - first_channel)},
        .strides = {channels, 1},
        .offset = first_pixel * channels + first_channel};
    return add_view(buffer.buffer, std::move(desc));
  }

  // A slice, sometimes with a step, sometimes empty.
  ViewId random_view(const Live& buffer) {
    const int64_t elements = buffer.elements;
    if (elements >= 16 && random_chance(rng_, 0.5)) return random_channels(buffer);
    const auto begin = static_cast<int64_t>(rng_() % elements);
    const auto stride = static_cast<int64_t>(random_between(rng_, 1, 3));
    const int64_t most = (elements - begin + stride - 1) / stride;
    const int64_t count =
        random_chance(rng_, 0.05) ? 0 : static_cast<int64_t>(random_between(rng_, 1, most));
    TensorDesc desc{.dtype = float32(), .sizes = {count}, .strides = {stride}, .offset = begin};
    return add_view(buffer.buffer, std::move(desc));
  }

  MemoryId add_memory(Role role, BufferId buffer, int64_t bytes) {
    graph_.memories.push_back(
        {.bytes = static_cast<size_t>(bytes), .role = role, .buffer = buffer});
    current_.emplace_back();
    return MemoryId(graph_.memories.size() - 1);
  }

  ValueId add_value(MemoryId memory, OpId producer) {
    graph_.values.push_back({memory, producer, {}});
    return current_[memory.index] = ValueId(graph_.values.size() - 1);
  }

  ValueId current_value(MemoryId memory) const { return current_[memory.index]; }

  void add_reader(ValueId value, OpId op) {
    auto& readers = graph_.values[value.index].readers;
    if (readers.empty() || readers.back() != op) readers.push_back(op);
  }

  std::mt19937& rng_;
  Graph graph_;
  size_t buffers_ = 0;
  MemoryId generator_;
  std::vector<Live> live_;
  std::vector<ValueId> current_;  // by memory
};

// A program of 1 to `max_ops` ops on inputs, externals, a constant, intermediates and a random
// generator: reads, overwrites, in-place updates and partial writes through slices, by whole ops
// and by parts. Whatever is read was written before. Edges: every pair with a hazard.
inline Graph random_graph(std::mt19937& rng, size_t max_ops) {
  return RandomProgram(rng).write(random_between(rng, 1, max_ops));
}

}  // namespace nimble::testing
