#include "nimble/schedule/build.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "nimble/base/error.h"

namespace nimble {
namespace {

Task make_task(const Graph& graph, const Op& op) {
  Task task;
  task.label = op.name;
  task.module = op.module;
  for (const Operand& operand : op.operands) {
    if (!operand.reads && !operand.writes) continue;  // looked at its shape only
    const bool has_bytes = graph.memories[operand.memory.index].role != Role::kGenerator;
    task.touches.push_back({.memory = operand.memory,
                            .bytes = has_bytes ? graph.bytes_touched(operand) : ByteSet(),
                            .writes = operand.writes});
  }
  return task;
}

enum class Plan { kNone, kIntermediate, kResult };

// By memory: what is to be known of it.
std::vector<Plan> plans_of(const Graph& graph, const std::vector<bool>& unplanned_memories) {
  NIMBLE_ASSERT(unplanned_memories.empty() || unplanned_memories.size() == graph.memories.size());
  std::vector<Plan> plans(graph.memories.size(), Plan::kNone);
  for (size_t i = 0; i < plans.size(); ++i)
    if (graph.memories[i].role == Role::kIntermediate && !graph.memories[i].is_output)
      plans[i] = Plan::kIntermediate;
  const size_t joint = std::min(graph.first_joint_output, graph.outputs.size());
  for (size_t i = joint; i < graph.outputs.size(); ++i)
    if (const uint32_t memory = graph.outputs[i].memory.index;
        graph.memories[memory].role == Role::kIntermediate)
      plans[memory] = Plan::kResult;
  for (size_t i = 0; i < joint; ++i) plans[graph.outputs[i].memory.index] = Plan::kNone;
  for (size_t i = 0; i < unplanned_memories.size(); ++i)
    if (unplanned_memories[i]) plans[i] = Plan::kNone;
  return plans;
}

// Puts the steps on their streams with the fewest waits that cover every edge.
//
// Every finished step has a vector clock: how many steps of each stream are surely done by then.
// A step needs, of each other stream, the last step that an edge comes from. It waits for it only
// if neither the step before it on its own stream nor another step it waits for knows of it.
// What is left is the transitive reduction of edges and stream order, which is unique.
class WaitBuilder {
 public:
  WaitBuilder(const std::vector<std::vector<uint32_t>>& sources, const StreamAssignment& assignment)
      : stream_count_(assignment.streams.size()),
        sources_(sources),
        places_(sources.size()),
        clocks_(sources.size() * stream_count_, 0),
        streams_(stream_count_) {
    for (uint32_t stream = 0; stream < stream_count_; ++stream) {
      const auto& nodes = assignment.streams[stream];
      streams_[stream].resize(nodes.size());
      for (uint32_t step = 0; step < nodes.size(); ++step) {
        streams_[stream][step].task = TaskId(nodes[step]);
        places_[nodes[step]] = {stream, step};
      }
    }
  }

  std::vector<std::vector<Step>> run(const std::vector<uint32_t>& order) && {
    for (uint32_t node : order) add_waits(node);
    return std::move(streams_);
  }

 private:
  struct Place {
    uint32_t stream = 0;
    uint32_t step = 0;
  };

  uint32_t* clock_of(uint32_t node) { return clocks_.data() + node * stream_count_; }
  uint32_t* clock_of(const Wait& wait) {
    return clock_of(streams_[wait.stream.index][wait.step].task.index);
  }
  static bool knows(const uint32_t* clock, const Wait& wait) {
    return clock[wait.stream.index] > wait.step;
  }
  void learn(uint32_t* clock, const uint32_t* other) const {
    for (size_t stream = 0; stream < stream_count_; ++stream)
      clock[stream] = std::max(clock[stream], other[stream]);
  }

  void add_waits(uint32_t node) {
    const Place place = places_[node];
    uint32_t* clock = clock_of(node);
    if (place.step > 0) learn(clock, clock_of(streams_[place.stream][place.step - 1].task.index));

    needed_.clear();
    for (uint32_t source : sources_[node]) {
      const Wait wait{StreamId(places_[source].stream), places_[source].step};
      if (!knows(clock, wait)) needed_.push_back(wait);
    }
    std::sort(needed_.begin(), needed_.end());
    auto& waits = streams_[place.stream][place.step].waits;
    for (const Wait& wait : needed_) {
      const bool implied = std::any_of(needed_.begin(), needed_.end(), [&](const Wait& other) {
        return other != wait && knows(clock_of(other), wait);
      });
      if (!implied) waits.push_back(wait);
    }
    for (const Wait& wait : waits) learn(clock, clock_of(wait));
    clock[place.stream] = place.step + 1;
  }

  size_t stream_count_;
  const std::vector<std::vector<uint32_t>>& sources_;
  std::vector<Place> places_;     // by node
  std::vector<uint32_t> clocks_;  // by node, then stream
  std::vector<std::vector<Step>> streams_;
  std::vector<Wait> needed_;
};

}  // namespace

Dag dependency_dag(const Graph& graph, const std::vector<Edge>& extra_edges) {
  std::vector<std::pair<uint32_t, uint32_t>> edges;
  edges.reserve(graph.edges.size() + extra_edges.size());
  for (const auto* list : {&graph.edges, &extra_edges})
    for (const Edge& edge : *list) edges.emplace_back(edge.before.index, edge.after.index);
  return make_dag(graph.ops.size(), edges);
}

BuiltSchedule build_schedule(const Graph& graph, const StreamAssignment& assignment,
                             const std::vector<double>& cost_ns,
                             const std::vector<bool>& unplanned_memories,
                             const BuildOptions& options) {
  NIMBLE_ASSERT(cost_ns.empty() || cost_ns.size() == graph.ops.size());
  BuiltSchedule built;
  Schedule& schedule = built.schedule;
  for (const Op& op : graph.ops) schedule.tasks.push_back(make_task(graph, op));
  for (size_t i = 0; i < cost_ns.size(); ++i) schedule.tasks[i].cost_ns = cost_ns[i];

  const Dag dag = dependency_dag(graph, options.extra_edges);
  const std::vector<uint32_t> order = execution_order(dag, assignment);  // checks the assignment
  std::vector<std::vector<uint32_t>> sources = predecessors(dag);
  schedule.streams = WaitBuilder(sources, assignment).run(order);

  std::vector<bool> is_used(graph.memories.size());  // a pass may have left some over
  for (const Task& task : schedule.tasks)
    for (const Touch& touch : task.touches) is_used[touch.memory.index] = true;
  std::vector<ArenaRequest> requests;
  const std::vector<Plan> plans = plans_of(graph, unplanned_memories);
  for (size_t i = 0; i < graph.memories.size(); ++i) {
    const Memory& memory = graph.memories[i];
    schedule.placements.push_back(
        {.bytes = memory.bytes, .order_only = memory.role == Role::kGenerator});
    if (plans[i] != Plan::kNone && is_used[i])
      requests.push_back({MemoryId(i), memory.bytes, plans[i] == Plan::kResult});
  }
  built.memory = plan_memory(schedule, requests);
  if (schedule.arena_bytes <= options.memory_limit_bytes || options.expected.order.empty())
    return built;
  for (const Edge& edge : plan_memory_by_time(schedule, requests, options.expected))
    sources[edge.after.index].push_back(edge.before.index);
  schedule.streams = WaitBuilder(sources, assignment).run(options.expected.order);
  return built;
}

MemoryUses planned_memory_uses(const Graph& graph, const std::vector<bool>& unplanned_memories) {
  MemoryUses uses;
  const std::vector<Plan> plans = plans_of(graph, unplanned_memories);
  for (const Memory& memory : graph.memories) {
    // As much as it will take of the arena.
    uses.bytes.push_back((memory.bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment);
  }
  for (const Op& op : graph.ops) {
    auto& memories = uses.memories.emplace_back();
    for (const Operand& operand : op.operands)
      if ((operand.reads || operand.writes) && !graph.bytes_touched(operand).empty() &&
          plans[operand.memory.index] != Plan::kNone)
        memories.push_back(operand.memory.index);
    std::sort(memories.begin(), memories.end());
    memories.erase(std::unique(memories.begin(), memories.end()), memories.end());
  }
  return uses;
}

StreamAssignment single_stream(const Graph& graph) {
  StreamAssignment assignment;
  assignment.streams.emplace_back(graph.ops.size());
  std::iota(assignment.streams[0].begin(), assignment.streams[0].end(), 0);
  return assignment;
}

}  // namespace nimble
