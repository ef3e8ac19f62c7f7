// Graphs, executables and user objects.
#include <cstdio>

#include "state.h"

using namespace fake_cuda;

namespace {
Graph* as_graph(cudaGraph_t handle) {
  return reinterpret_cast<Graph*>(handle);
}
Node* as_node(cudaGraphNode_t handle) {
  return reinterpret_cast<Node*>(handle);
}

void run_all(const std::vector<Work>& works) {
  for (const Work& work : works) work();
}

cudaError_t instantiate(cudaGraphExec_t* out, cudaGraph_t handle) {
  State& s = state();
  std::lock_guard guard(s.lock);
  Graph* graph = as_graph(handle);
  if (!s.graphs.count(graph)) return result(cudaErrorInvalidValue);
  auto made = std::make_unique<Executable>();
  made->program = std::make_shared<Program>();
  made->program->nodes = graph->nodes;
  made->user_objects = graph->user_objects;
  for (auto& [object, count] : made->user_objects) object->references += count;
  *out = reinterpret_cast<cudaGraphExec_t>(made.get());
  s.executables.insert(made.release());
  return cudaSuccess;
}
}  // namespace

namespace fake_cuda {
void release(UserObject* object, int64_t count, std::vector<Work>& after_unlock) {
  if ((object->references -= count) > 0) return;
  state().user_objects.erase(object);
  after_unlock.push_back(
      [owner = std::shared_ptr<UserObject>(object)] { owner->destroy(owner->pointer); });
}
}  // namespace fake_cuda

FAKE_EXPORT cudaError_t cudaGraphCreate(cudaGraph_t* out, unsigned) {
  State& s = state();
  std::lock_guard guard(s.lock);
  *out = reinterpret_cast<cudaGraph_t>(*s.graphs.insert(std::make_unique<Graph>().release()).first);
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  State& s = state();
  std::vector<Work> after_unlock;
  {
    std::lock_guard guard(s.lock);
    Graph* graph = as_graph(handle);
    if (!s.graphs.erase(graph)) return result(cudaErrorInvalidValue);
    std::unique_ptr<Graph> owner(graph);
    for (auto& [object, count] : owner->user_objects) release(object, count, after_unlock);
  }
  run_all(after_unlock);
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph,
                                             unsigned long long) {
  return instantiate(out, graph);
}
FAKE_EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph,
                                                      unsigned long long) {
  return instantiate(out, graph);
}
FAKE_EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  State& s = state();
  std::vector<Work> after_unlock;
  {
    std::lock_guard guard(s.lock);
    auto* executable = reinterpret_cast<Executable*>(handle);
    if (!s.executables.erase(executable)) return result(cudaErrorInvalidValue);
    std::unique_ptr<Executable> owner(executable);
    for (auto& [object, count] : owner->user_objects) release(object, count, after_unlock);
  }
  run_all(after_unlock);
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  State& s = state();
  std::shared_ptr<Program> program;
  {
    std::lock_guard guard(s.lock);
    auto* executable = reinterpret_cast<Executable*>(handle);
    if (!s.executables.count(executable)) return result(cudaErrorInvalidValue);
    program = executable->program;
    ++s.counters.graph_launches;
  }
  return enqueue(
      stream, FAKE_CUDA_CHILD_GRAPH, "graph", [program] { run_program(*program); }, {},
      cost_of(*program));
}

FAKE_EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* out, size_t* count) {
  State& s = state();
  std::lock_guard guard(s.lock);
  Graph* graph = as_graph(handle);
  size_t all = graph->nodes.size();
  if (out)
    for (size_t i = 0; i < *count; ++i)
      out[i] = i < all ? reinterpret_cast<cudaGraphNode_t>(&graph->nodes[i]) : nullptr;
  if (!out || *count > all) *count = all;
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaGraphGetEdges(cudaGraph_t handle, cudaGraphNode_t* from,
                                          cudaGraphNode_t* to, cudaGraphEdgeData*, size_t* count) {
  std::lock_guard guard(state().lock);
  size_t found = 0;
  Graph* graph = as_graph(handle);
  for (Node& node : graph->nodes)
    for (int dependency : node.dependencies) {
      if (from && to && found < *count) {
        from[found] = reinterpret_cast<cudaGraphNode_t>(&graph->nodes[dependency]);
        to[found] = reinterpret_cast<cudaGraphNode_t>(&node);
      }
      ++found;
    }
  if (!from || *count > found) *count = found;
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t handle, cudaGraphNode_t* out,
                                                     cudaGraphEdgeData*, size_t* count) {
  std::lock_guard guard(state().lock);
  Node* node = as_node(handle);
  size_t all = node->dependencies.size();
  if (out)
    for (size_t i = 0; i < *count && i < all; ++i)
      out[i] = reinterpret_cast<cudaGraphNode_t>(&node->graph->nodes[node->dependencies[i]]);
  if (!out || *count > all) *count = all;
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaGraphNodeGetType(cudaGraphNode_t handle, cudaGraphNodeType* type) {
  switch (as_node(handle)->kind) {
    case FAKE_CUDA_KERNEL:
      *type = cudaGraphNodeTypeKernel;
      break;
    case FAKE_CUDA_MEMCPY:
      *type = cudaGraphNodeTypeMemcpy;
      break;
    case FAKE_CUDA_MEMSET:
      *type = cudaGraphNodeTypeMemset;
      break;
    case FAKE_CUDA_HOST:
      *type = cudaGraphNodeTypeHost;
      break;
    case FAKE_CUDA_CHILD_GRAPH:
      *type = cudaGraphNodeTypeGraph;
      break;
    case FAKE_CUDA_ALLOC:
      *type = cudaGraphNodeTypeMemAlloc;
      break;
    case FAKE_CUDA_FREE:
      *type = cudaGraphNodeTypeMemFree;
      break;
    case FAKE_CUDA_CONDITIONAL:
      *type = cudaGraphNodeTypeConditional;
      break;
    default:
      *type = cudaGraphNodeTypeEmpty;
  }
  return cudaSuccess;
}

// Of nodes added by hand only what PyTorch adds: empty and conditional ones. A body never runs.
FAKE_EXPORT cudaError_t cudaGraphAddNode(cudaGraphNode_t* out, cudaGraph_t handle,
                                         const cudaGraphNode_t* dependencies,
                                         const cudaGraphEdgeData*, size_t count,
                                         cudaGraphNodeParams* parameters) {
  std::lock_guard guard(state().lock);
  Graph* graph = as_graph(handle);
  std::vector<int> tail;
  for (size_t i = 0; i < count; ++i) tail.push_back(as_node(dependencies[i])->index);
  if (parameters->type == cudaGraphNodeTypeConditional) {
    auto& conditional = parameters->conditional;
    // The handles stay valid as long as the parent.
    size_t first = graph->bodies.size();
    for (unsigned i = 0; i < conditional.size; ++i)
      graph->bodies.push_back(std::make_unique<Graph>());
    auto handles = std::make_shared<std::vector<cudaGraph_t>>();
    for (unsigned i = 0; i < conditional.size; ++i)
      handles->push_back(reinterpret_cast<cudaGraph_t>(graph->bodies[first + i].get()));
    conditional.phGraph_out = handles->data();
    Node& node = add_node(*graph, FAKE_CUDA_CONDITIONAL, "conditional", tail);
    node.work = [handles] {};
    *out = reinterpret_cast<cudaGraphNode_t>(&node);
    return cudaSuccess;
  }
  if (parameters->type != cudaGraphNodeTypeEmpty) return result(cudaErrorNotSupported);
  *out = reinterpret_cast<cudaGraphNode_t>(&add_node(*graph, FAKE_CUDA_EMPTY, "empty", tail));
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaGraphDebugDotPrint(cudaGraph_t handle, const char* path, unsigned) {
  std::lock_guard guard(state().lock);
  std::FILE* file = std::fopen(path, "w");
  if (!file) return result(cudaErrorInvalidValue);
  std::fprintf(file, "digraph {\n");
  for (const Node& node : as_graph(handle)->nodes) {
    std::fprintf(file, "%d [label=\"%s\"]\n", node.index, node.name);
    for (int from : node.dependencies) std::fprintf(file, "%d -> %d\n", from, node.index);
  }
  std::fprintf(file, "}\n");
  std::fclose(file);
  return cudaSuccess;
}

FAKE_EXPORT cudaError_t cudaUserObjectCreate(cudaUserObject_t* out, void* pointer,
                                             cudaHostFn_t destroy, unsigned references, unsigned) {
  std::lock_guard guard(state().lock);
  auto made = std::make_unique<UserObject>(UserObject{pointer, destroy, references});
  *out = reinterpret_cast<cudaUserObject_t>(made.get());
  state().user_objects.insert(made.release());
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaUserObjectRelease(cudaUserObject_t handle, unsigned count) {
  std::vector<Work> after_unlock;
  {
    std::lock_guard guard(state().lock);
    release(reinterpret_cast<UserObject*>(handle), count, after_unlock);
  }
  run_all(after_unlock);
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaGraphRetainUserObject(cudaGraph_t handle,
                                                  cudaUserObject_t object_handle, unsigned count,
                                                  unsigned flags) {
  std::lock_guard guard(state().lock);
  auto* object = reinterpret_cast<UserObject*>(object_handle);
  if (!(flags & cudaGraphUserObjectMove)) object->references += count;
  as_graph(handle)->user_objects[object] += count;
  return cudaSuccess;
}
