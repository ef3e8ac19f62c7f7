// What tests may ask of the fake CUDA runtime. Plain C, so that ctypes can call it as well
// (tests/fake_cuda/api.py). All functions may be called from any thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  FAKE_CUDA_KERNEL = 0,  // also a call of cuBLAS or cuDNN, by the name of its entry point
  FAKE_CUDA_MEMCPY = 1,
  FAKE_CUDA_MEMSET = 2,
  FAKE_CUDA_HOST = 3,  // cudaLaunchHostFunc
  FAKE_CUDA_EMPTY = 4,
  FAKE_CUDA_CHILD_GRAPH = 5,  // a graph launched inside of a capture
  FAKE_CUDA_ALLOC = 6,        // cudaMallocAsync
  FAKE_CUDA_FREE = 7,
  FAKE_CUDA_CONDITIONAL = 8,
};

typedef struct {
  int64_t tag;       // what fake_cuda_set_tag said when the node was made
  uint64_t stream;   // the stream's number, see fake_cuda_stream_number
  const char* name;  // a kernel's mangled name; valid until the process ends
  int32_t kind;
  int32_t range_count;  // memory that is known to be read or written (copies, fills)
  int32_t priority;     // of the stream
} fake_cuda_node;

typedef struct {
  uint64_t address;
  uint64_t bytes;
  int32_t writes;
} fake_cuda_range;

// Nodes made from now on carry this tag, whatever thread makes them.
void fake_cuda_set_tag(int64_t tag);

// A number per stream since the process began; 0 is the legacy stream.
uint64_t fake_cuda_stream_number(void* stream);

// A copy of a captured graph, or of the log. Nodes are in the order of their issue.
typedef struct fake_cuda_snapshot fake_cuda_snapshot;
// Of the last capture that ended well; NULL if there was none.
fake_cuda_snapshot* fake_cuda_take_last_capture(void);
// Of a cudaGraph_t.
fake_cuda_snapshot* fake_cuda_take_graph(void* graph);
// What ran outside of captures since the log was switched on or taken. It has no edges.
void fake_cuda_set_log(int on);
fake_cuda_snapshot* fake_cuda_take_log(void);
void fake_cuda_free_snapshot(fake_cuda_snapshot* snapshot);

size_t fake_cuda_node_count(const fake_cuda_snapshot* snapshot);
size_t fake_cuda_edge_count(const fake_cuda_snapshot* snapshot);
void fake_cuda_get_nodes(const fake_cuda_snapshot* snapshot, fake_cuda_node* out);
// Pairs (from, to) of indices of nodes.
void fake_cuda_get_edges(const fake_cuda_snapshot* snapshot, int32_t* out);
void fake_cuda_get_ranges(const fake_cuda_snapshot* snapshot, size_t node, fake_cuda_range* out);

// A graph's nodes run in a random topological order; each launch in another one.
void fake_cuda_set_seed(uint64_t seed);
// Indices of the nodes of the last launch in the order they ran. Returns how many there are; writes
// at most `room`.
size_t fake_cuda_last_launch_order(int32_t* out, size_t room);

// A kernel that computes: kernels whose mangled name contains `name_part` run `function` with their
// arguments, whose sizes must be given as a captured kernel keeps copies of them. Counts for
// launches and captures from now on. NULL takes it away.
typedef void (*fake_cuda_kernel)(void** arguments, const uint32_t* grid, const uint32_t* block,
                                 void* user);
void fake_cuda_set_kernel(const char* name_part, fake_cuda_kernel function, void* user,
                          const size_t* argument_sizes, size_t argument_count);

// What events measure is made up: a kernel, copy, fill or host function whose name contains
// `name_part` takes that long on its stream, in microseconds; what was said last counts, 1 if
// nothing was. A graph takes as long as its longest path. Counts for launches and captures from
// now on.
void fake_cuda_set_cost(const char* name_part, double microseconds);

// Every cudaMalloc and cudaFree, oldest first.
typedef struct {
  uint64_t address;
  uint64_t bytes;
  int32_t is_free;
  int32_t captured_nodes;  // nodes that all captures together had when it happened
} fake_cuda_allocation;
size_t fake_cuda_allocation_count(void);
void fake_cuda_get_allocations(fake_cuda_allocation* out);
void fake_cuda_clear_allocations(void);

// What lives, and what was done since the process began.
typedef struct {
  int64_t streams, events, graphs, executables, user_objects, captures;
  int64_t device_bytes, device_blocks, pinned_bytes;
  int64_t blas_handles, dnn_handles;
  int64_t kernel_launches, graph_launches, captured_nodes;
} fake_cuda_counters;
void fake_cuda_get_counters(fake_cuda_counters* out);

// Device memory that there seems to be; also by the environment: FAKE_CUDA_MEMORY, in MiB.
void fake_cuda_set_memory(uint64_t bytes);

// Device memory stays zero from now on, whatever is copied or filled: then all runs of a program
// give the same. Also by the environment: FAKE_CUDA_BLANK=1.
void fake_cuda_set_blank(int on);

// Faults. `after` counts from now: 1 is the next call. 0 takes the fault away.
// `count` cudaMallocs in a row are out of memory (PyTorch empties its cache and tries again).
void fake_cuda_fail_malloc(int64_t after, int64_t count);
// A kernel launch returns `error` (a cudaError_t) and does nothing.
void fake_cuda_fail_launch(int64_t after, int error);
// A kernel launch seems fine; the next call that waits for the device returns `error`, once.
// Kernels of a graph count when the graph is launched.
void fake_cuda_fail_later(int64_t after, int error);

#ifdef __cplusplus
}
#endif
