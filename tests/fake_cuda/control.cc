// What fake_cuda.h offers.
#include <algorithm>

#include "state.h"

using namespace fake_cuda;

struct fake_cuda_snapshot {
  std::deque<Node> nodes;
};

namespace {
fake_cuda_snapshot* snapshot_of(std::deque<Node> nodes) {
  for (Node& node : nodes) node.work = {};
  return std::make_unique<fake_cuda_snapshot>(fake_cuda_snapshot{std::move(nodes)}).release();
}
}  // namespace

FAKE_EXPORT void fake_cuda_set_tag(int64_t tag) {
  std::lock_guard guard(state().lock);
  state().tag = tag;
}

FAKE_EXPORT uint64_t fake_cuda_stream_number(void* stream) {
  std::lock_guard guard(state().lock);
  Stream* found = find_stream(static_cast<cudaStream_t>(stream));
  return found ? found->number : UINT64_MAX;
}

FAKE_EXPORT fake_cuda_snapshot* fake_cuda_take_last_capture() {
  std::lock_guard guard(state().lock);
  return state().has_last_capture ? snapshot_of(state().last_capture) : nullptr;
}
FAKE_EXPORT fake_cuda_snapshot* fake_cuda_take_graph(void* graph) {
  std::lock_guard guard(state().lock);
  auto* found = static_cast<Graph*>(graph);
  return state().graphs.count(found) ? snapshot_of(found->nodes) : nullptr;
}
FAKE_EXPORT void fake_cuda_set_log(int on) {
  std::lock_guard guard(state().lock);
  state().log_on = on;
  state().log.clear();
}
FAKE_EXPORT fake_cuda_snapshot* fake_cuda_take_log() {
  std::lock_guard guard(state().lock);
  std::deque<Node> log;
  std::swap(log, state().log);
  return snapshot_of(std::move(log));
}
FAKE_EXPORT void fake_cuda_free_snapshot(fake_cuda_snapshot* snapshot) {
  std::unique_ptr<fake_cuda_snapshot> owner(snapshot);
}

FAKE_EXPORT size_t fake_cuda_node_count(const fake_cuda_snapshot* snapshot) {
  return snapshot->nodes.size();
}
FAKE_EXPORT size_t fake_cuda_edge_count(const fake_cuda_snapshot* snapshot) {
  size_t count = 0;
  for (const Node& node : snapshot->nodes) count += node.dependencies.size();
  return count;
}
FAKE_EXPORT void fake_cuda_get_nodes(const fake_cuda_snapshot* snapshot, fake_cuda_node* out) {
  for (const Node& node : snapshot->nodes)
    *out++ = {node.tag,     node.stream, node.name, node.kind, int32_t(node.ranges.size()),
              node.priority};
}
FAKE_EXPORT void fake_cuda_get_edges(const fake_cuda_snapshot* snapshot, int32_t* out) {
  for (const Node& node : snapshot->nodes)
    for (int from : node.dependencies) {
      *out++ = from;
      *out++ = node.index;
    }
}
FAKE_EXPORT void fake_cuda_get_ranges(const fake_cuda_snapshot* snapshot, size_t node,
                                      fake_cuda_range* out) {
  std::ranges::copy(snapshot->nodes[node].ranges, out);
}

FAKE_EXPORT void fake_cuda_set_seed(uint64_t seed) {
  std::lock_guard guard(state().lock);
  state().random.seed(seed);
}
FAKE_EXPORT size_t fake_cuda_last_launch_order(int32_t* out, size_t room) {
  std::lock_guard guard(state().lock);
  const auto& order = state().last_order;
  std::copy_n(order.begin(), std::min(room, order.size()), out);
  return order.size();
}

FAKE_EXPORT void fake_cuda_set_kernel(const char* name_part, fake_cuda_kernel function, void* user,
                                      const size_t* sizes, size_t count) {
  std::lock_guard guard(state().lock);
  auto& functions = state().kernel_functions;
  std::erase_if(functions, [&](const auto& entry) { return entry.name_part == name_part; });
  if (function) functions.push_back({name_part, function, user, {sizes, sizes + count}});
}

FAKE_EXPORT void fake_cuda_set_cost(const char* name_part, double microseconds) {
  std::lock_guard guard(state().lock);
  state().costs.emplace_back(name_part, microseconds);
}

FAKE_EXPORT size_t fake_cuda_allocation_count() {
  std::lock_guard guard(state().lock);
  return state().allocations.size();
}
FAKE_EXPORT void fake_cuda_get_allocations(fake_cuda_allocation* out) {
  std::lock_guard guard(state().lock);
  std::ranges::copy(state().allocations, out);
}
FAKE_EXPORT void fake_cuda_clear_allocations() {
  std::lock_guard guard(state().lock);
  state().allocations.clear();
}

FAKE_EXPORT void fake_cuda_get_counters(fake_cuda_counters* out) {
  State& s = state();
  std::lock_guard guard(s.lock);
  *out = s.counters;
  out->streams = int64_t(s.streams.size());
  out->events = int64_t(s.events.size());
  out->graphs = int64_t(s.graphs.size());
  out->executables = int64_t(s.executables.size());
  out->user_objects = int64_t(s.user_objects.size());
  out->captures = int64_t(s.captures.size());
}

FAKE_EXPORT void fake_cuda_set_memory(uint64_t bytes) {
  std::lock_guard guard(state().lock);
  state().memory_bytes = bytes;
}

FAKE_EXPORT void fake_cuda_set_blank(int on) {
  std::lock_guard guard(state().lock);
  state().blank = on;
}

FAKE_EXPORT void fake_cuda_fail_malloc(int64_t after, int64_t count) {
  std::lock_guard guard(state().lock);
  state().malloc_fault = {after, count, 0};
}
FAKE_EXPORT void fake_cuda_fail_launch(int64_t after, int error) {
  std::lock_guard guard(state().lock);
  state().launch_fault = {after, 1, error};
}
FAKE_EXPORT void fake_cuda_fail_later(int64_t after, int error) {
  std::lock_guard guard(state().lock);
  state().later_fault = {after, 1, error};
  if (!after) state().later_error = cudaSuccess;
}
