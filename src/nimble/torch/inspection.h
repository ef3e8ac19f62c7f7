#pragma once

#include <string>
#include <vector>

#include "nimble/kernels/instruction_sets.h"
#include "nimble/schedule/simulate_gpu.h"
#include "nimble/torch/engine.h"

namespace nimble {

// Questions about a prepared engine that no replay needs; each is answered when asked.

// The program on a device with room for every stream.
struct LogicalConcurrency {
  size_t degree = 0;   // the most ops of which no two are ordered
  size_t streams = 0;  // of the assignment with the fewest waits
  size_t waits = 0;
  size_t edges = 0;  // of the minimum equivalent graph
};
LogicalConcurrency logical_concurrency(const Engine& engine);

// Proves the schedule free of races again; one sentence per fault.
std::vector<std::string> verify(const Engine& engine);

std::string graph_text(const Engine& engine);
std::string graph_dot(const Engine& engine);

// Replays a few times and says when each task of the last replay ran, for Perfetto.
std::string timeline(Engine& engine, const std::vector<at::Tensor>& inputs);

// The recorded program on a described GPU, with the framework's kernels, on paper.
struct GpuSimulation {
  double flops = 0;  // of the whole program, estimated as all that follows
  double bytes = 0;
  size_t streams = 0;  // of many_streams
  size_t waits = 0;
  GpuRun eager;          // op by op
  GpuRun one_stream;     // a replay
  GpuRun many_streams;   // a replay, with room for every stream
  GpuRun capped;         // a replay on as many streams as are captured, in recorded order
  GpuRun launch_order;   // likewise, the longest path first
  GpuRun priorities;     // likewise, and urgent streams first
  std::string timeline;  // of many_streams, for Perfetto
};
// Throws UserError if no such GPU is described.
GpuSimulation simulate_on_gpu(const Engine& engine, const std::string& gpu);

// What each of so many threads can do at most at the same time, in GFLOP/s; takes a moment.
double fma_peak_gflops(int threads);

}  // namespace nimble
