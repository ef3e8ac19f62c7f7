#include "state.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace fake_cuda {

State& state() {
  static State& only = *[] {
    auto made = std::make_unique<State>();
    if (const char* mib = std::getenv("FAKE_CUDA_MEMORY"))
      made->memory_bytes = std::strtoull(mib, nullptr, 10) << 20;
    if (const char* blank = std::getenv("FAKE_CUDA_BLANK")) made->blank = *blank == '1';
    if (const char* seed = std::getenv("FAKE_CUDA_SEED"))
      made->random.seed(std::strtoull(seed, nullptr, 10));
    return made.release();
  }();
  return only;
}

const char* intern(const std::string& name) {
  static std::mutex& lock = *std::make_unique<std::mutex>().release();
  static auto& names = *std::make_unique<std::unordered_set<std::string>>().release();
  std::lock_guard guard(lock);
  return names.insert(name).first->c_str();
}

Stream* find_stream(cudaStream_t handle) {
  State& s = state();
  // The per-thread default stream is taken for the legacy one: PyTorch does not use it.
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread)
    return &s.legacy;
  auto* stream = reinterpret_cast<Stream*>(handle);
  return s.streams.count(stream) ? stream : nullptr;
}

double cost_of(int kind, const char* name) {
  if (kind > FAKE_CUDA_HOST) return 0;
  const auto& costs = state().costs;
  for (auto entry = costs.rbegin(); entry != costs.rend(); ++entry)
    if (std::strstr(name, entry->first.c_str())) return entry->second;
  return 1;
}

double cost_of(const Program& program) {
  double longest = 0;
  std::vector<double> ends(program.nodes.size());  // nodes are made after what they depend on
  for (const Node& node : program.nodes) {
    double& end = ends[node.index];
    for (int from : node.dependencies) end = std::max(end, ends[from]);
    end += node.cost;
    longest = std::max(longest, end);
  }
  return longest;
}

Node& add_node(Graph& graph, int kind, const char* name, std::vector<int> dependencies) {
  State& s = state();
  Node& node = graph.nodes.emplace_back();
  node.kind = kind;
  node.name = name;
  node.tag = s.tag;
  node.stream = 0;
  node.priority = 0;
  node.cost = cost_of(kind, name);
  std::sort(dependencies.begin(), dependencies.end());
  dependencies.erase(std::unique(dependencies.begin(), dependencies.end()), dependencies.end());
  node.dependencies = std::move(dependencies);
  node.index = int(graph.nodes.size()) - 1;
  node.graph = &graph;
  return node;
}

bool is_ancestor_or_same(const Graph& graph, int node, const std::vector<int>& tail) {
  std::vector<bool> seen(graph.nodes.size());
  std::vector<int> todo = tail;
  while (!todo.empty()) {
    int at = todo.back();
    todo.pop_back();
    if (at == node) return true;
    if (seen[at]) continue;
    seen[at] = true;
    // Nodes are made after what they depend on, so nothing before `node` leads to it.
    for (int from : graph.nodes[at].dependencies)
      if (from >= node) todo.push_back(from);
  }
  return false;
}

cudaError_t enqueue(cudaStream_t handle, int kind, const char* name, Work work,
                    std::vector<fake_cuda_range> ranges, double cost) {
  State& s = state();
  {
    std::lock_guard guard(s.lock);
    Stream* stream = find_stream(handle);
    if (!stream) return result(cudaErrorInvalidResourceHandle);
    if (cost < 0) cost = cost_of(kind, name);
    if (stream == &s.legacy)
      if (auto error = check_legacy_stream()) return result(error);
    if (stream->capture) {
      Capture& capture = *stream->capture;
      if (capture.invalidated) return result(cudaErrorStreamCaptureInvalidated);
      Node& node = add_node(*capture.graph, kind, name, stream->tail);
      node.stream = stream->number;
      node.priority = stream->priority;
      node.cost = cost;
      node.work = std::move(work);
      node.ranges = std::move(ranges);
      stream->tail = {node.index};
      ++s.counters.captured_nodes;
      return cudaSuccess;
    }
    stream->time += cost;
    if (s.log_on) {
      Node node{kind, name, s.tag,  stream->number, stream->priority, cost, {}, std::move(ranges),
                {},   0,    nullptr};
      node.index = int(s.log.size());
      s.log.push_back(std::move(node));
    }
  }
  if (work) work();
  return cudaSuccess;
}

cudaError_t enqueue_kernel(cudaStream_t handle, const char* name, Work work,
                           std::vector<fake_cuda_range> ranges) {
  State& s = state();
  {
    std::lock_guard guard(s.lock);
    if (s.launch_fault.strikes()) return result(cudaError_t(s.launch_fault.error));
    ++s.counters.kernel_launches;
    Stream* stream = find_stream(handle);
    if (stream && !stream->capture && s.later_fault.strikes())
      s.later_error = cudaError_t(s.later_fault.error);
  }
  return enqueue(handle, FAKE_CUDA_KERNEL, name, std::move(work), std::move(ranges));
}

void run_program(Program& program) {
  State& s = state();
  std::lock_guard one_at_a_time(program.running);
  const auto& nodes = program.nodes;
  std::vector<int> missing(nodes.size());
  std::vector<std::vector<int>> users(nodes.size());
  std::vector<int> ready;
  std::vector<int32_t> order;
  for (const Node& node : nodes) {
    missing[node.index] = int(node.dependencies.size());
    for (int from : node.dependencies) users[from].push_back(node.index);
    if (node.dependencies.empty()) ready.push_back(node.index);
  }
  std::mt19937_64 random;
  {
    std::lock_guard guard(s.lock);
    random.seed(s.random());
  }
  while (!ready.empty()) {
    size_t choice = random() % ready.size();
    int at = ready[choice];
    ready[choice] = ready.back();
    ready.pop_back();
    order.push_back(at);
    if (nodes[at].kind == FAKE_CUDA_KERNEL) {
      std::lock_guard guard(s.lock);
      if (s.later_fault.strikes()) s.later_error = cudaError_t(s.later_fault.error);
    }
    if (nodes[at].work) nodes[at].work();
    for (int user : users[at])
      if (--missing[user] == 0) ready.push_back(user);
  }
  std::lock_guard guard(s.lock);
  s.last_order = std::move(order);
}

}  // namespace fake_cuda

using namespace fake_cuda;

FAKE_EXPORT int fake_cuda_library_call(void* stream, const char* name,
                                       const fake_cuda_range* ranges, size_t range_count) {
  return enqueue_kernel(static_cast<cudaStream_t>(stream), name, {},
                        std::vector<fake_cuda_range>(ranges, ranges + range_count));
}

FAKE_EXPORT void fake_cuda_count_handle(int is_dnn, int change) {
  std::lock_guard guard(state().lock);
  (is_dnn ? state().counters.dnn_handles : state().counters.blas_handles) += change;
}
