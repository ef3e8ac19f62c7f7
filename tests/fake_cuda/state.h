// The state of the fake device. One lock guards all of it; no user's function runs under the lock.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fake_cuda.h"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace fake_cuda {

using Work = std::function<void()>;

struct Graph;

struct Node {
  int kind;
  const char* name;  // interned
  int64_t tag;
  uint64_t stream;
  int priority;
  double cost;                    // microseconds
  std::vector<int> dependencies;  // indices into the same graph
  std::vector<fake_cuda_range> ranges;
  Work work;  // may be empty
  int index;
  Graph* graph;
};

struct UserObject {
  void* pointer;
  cudaHostFn_t destroy;
  int64_t references;
};

struct Graph {
  std::deque<Node> nodes;  // addresses are handles, so they must not move
  std::map<UserObject*, int64_t> user_objects;
  std::vector<std::unique_ptr<Graph>> bodies;  // of conditional nodes
};

// What an executable runs; shared, as a capture of a launch keeps it too.
struct Program {
  std::deque<Node> nodes;
  std::mutex running;
};

struct Executable {
  std::shared_ptr<Program> program;
  std::map<UserObject*, int64_t> user_objects;
};

struct Stream;

struct Capture {
  uint64_t id;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  Stream* origin;
  Graph* graph;
  bool invalidated = false;
  bool active = true;
  std::set<Stream*> streams;
};

struct Stream {
  uint64_t number;
  unsigned flags;
  int priority;
  std::shared_ptr<Capture> capture;           // null unless capturing
  std::vector<int> tail;                      // nodes that the next one depends on
  std::vector<cudaGraphNode_t> tail_handles;  // what cudaStreamGetCaptureInfo lends out
  double time = 0;                            // microseconds that its work has taken so far
};

struct Event {
  unsigned flags;
  std::shared_ptr<Capture> capture;  // null if last recorded outside of captures
  std::vector<int> tail;
  double time = 0;  // of its stream
};

struct Block {
  size_t bytes;
  enum Kind { kDevice, kPinned, kManaged, kRegistered } kind;
};

struct KernelFunction {
  std::string name_part;
  fake_cuda_kernel function;
  void* user;
  std::vector<size_t> sizes;
};

struct Fault {
  int64_t after = 0;
  int64_t count = 1;
  int error = 0;
  // Whether the call being made is one that fails.
  bool strikes() {
    if (after == 0) return false;
    if (after > 1) {
      --after;
      return false;
    }
    if (--count <= 0) after = 0;
    return true;
  }
};

struct State {
  std::mutex lock;
  Stream legacy{0, cudaStreamDefault, 0, nullptr, {}, {}, 0};
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::set<Graph*> graphs;
  std::set<Executable*> executables;
  std::set<UserObject*> user_objects;
  std::set<std::shared_ptr<Capture>> captures;
  uint64_t next_stream = 1, next_capture = 1;

  std::map<uintptr_t, Block> blocks;
  uint64_t memory_bytes = uint64_t{80} << 30;
  bool blank = false;  // device memory stays zero
  std::vector<fake_cuda_allocation> allocations;

  std::unordered_map<const void*, const char*> kernel_names;
  std::unordered_map<const void*, std::pair<const char*, size_t>> variables;
  std::unordered_map<const void*, void*> variable_memory;
  std::vector<KernelFunction> kernel_functions;
  std::vector<std::pair<std::string, double>> costs;  // by part of a name

  int64_t tag = 0;
  bool log_on = false;
  std::deque<Node> log;
  std::deque<Node> last_capture;
  bool has_last_capture = false;
  std::mt19937_64 random{1};
  std::vector<int32_t> last_order;
  fake_cuda_counters counters{};
  Fault malloc_fault, launch_fault, later_fault;
  cudaError_t later_error = cudaSuccess;  // waits for the next call that waits for the device
};

// Never destroyed: PyTorch still calls when static objects are.
State& state();
const char* intern(const std::string& name);

// Keeps an error for cudaGetLastError, and returns it.
cudaError_t result(cudaError_t error);

// With the lock held:
Stream* find_stream(cudaStream_t handle);  // null if there is no such stream
void invalidate(Capture& capture);
// An error if this thread may not make a call that could disturb a capture; ends such a capture.
cudaError_t check_unsafe_call();
// An error if the legacy stream would have to wait for a capture.
cudaError_t check_legacy_stream();
cudaError_t take_later_error();
double cost_of(int kind, const char* name);  // microseconds
Node& add_node(Graph& graph, int kind, const char* name, std::vector<int> dependencies);
bool is_ancestor_or_same(const Graph& graph, int node, const std::vector<int>& tail);
void release(UserObject* object, int64_t count, std::vector<Work>& after_unlock);

// Without the lock: work on a stream. It becomes a node if the stream is capturing, and else runs
// at once. A negative cost: what work of this name takes.
cudaError_t enqueue(cudaStream_t stream, int kind, const char* name, Work work = {},
                    std::vector<fake_cuda_range> ranges = {}, double cost = -1);
// The same for a kernel: counts, faults and functions of tests apply.
cudaError_t enqueue_kernel(cudaStream_t stream, const char* name, Work work = {},
                           std::vector<fake_cuda_range> ranges = {});
// How long its longest path takes.
double cost_of(const Program& program);
// Runs all nodes in a random topological order.
void run_program(Program& program);

}  // namespace fake_cuda

// For the fakes of cuBLAS and cuDNN, which are libraries of their own.
FAKE_EXPORT int fake_cuda_library_call(void* stream, const char* name,
                                       const fake_cuda_range* ranges, size_t range_count);
FAKE_EXPORT void fake_cuda_count_handle(int is_dnn, int change);
