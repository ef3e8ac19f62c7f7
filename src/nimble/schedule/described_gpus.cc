#include "nimble/schedule/described_gpus.h"

#include "nimble/base/error.h"

namespace nimble {
namespace {

// Data sheet: 80 SMs, 15.7 TFLOP/s in float32, 900 GB/s. Of the others, each says where it is from;
// none is fitted to a network.
Gpu v100() {
  Gpu gpu;
  gpu.name = "v100";
  gpu.sms = 80;
  // A guess: 2 blocks of 256 threads are 4 warps for each of an SM's 4 schedulers.
  gpu.blocks_per_sm = 2;
  // A guess: convolutions that fill the GPU reach 70 % of its peak.
  gpu.flops_per_ns = 0.7 * 15700;
  // What microbenchmarks reach, as remembered: 83 % of the data sheet.
  gpu.bytes_per_ns = 0.83 * 900;
  // Little's law, a guess: 512 threads with 16 bytes each under way, for 0.4 us.
  gpu.sm_bytes_per_ns = 20;
  // A guess: the shortest kernels that profilers show take about 2 us.
  gpu.kernel_latency_ns = 2000;
  // NVIDIA's introduction to CUDA graphs, on a V100, as remembered: kernels of 2.9 us come every
  // 3.4 us.
  gpu.step_ns = 500;
  // A guess: an event between streams costs as much again.
  gpu.wait_ns = 500;
  // A guess: Python, dispatcher, allocator, cuDNN and launch, in the PyTorch of 2020.
  gpu.eager_op_ns = 30000;
  // A guess.
  gpu.graph_launch_ns = 10000;
  return gpu;
}

}  // namespace

Gpu described_gpu(const std::string& name) {
  if (name == "v100") return v100();
  throw UserError(message("no GPU called '", name, "' is described; there is: v100"));
}

}  // namespace nimble
