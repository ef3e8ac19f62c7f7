#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nimble/schedule/schedule.h"

namespace nimble {

// A GPU on paper. Its SMs have places for blocks. A block at work can have all that one SM does if
// it is alone there, so that a kernel with few blocks leaves the other SMs to others.
struct Gpu {
  std::string name;
  uint32_t sms = 1;
  uint32_t blocks_per_sm = 1;    // places
  double flops_per_ns = 1;       // of all SMs
  double bytes_per_ns = 1;       // of the memory
  double sm_bytes_per_ns = 1;    // what one SM can draw of that
  double kernel_latency_ns = 0;  // of any kernel, before its blocks work
  double step_ns = 0;            // from the end of a kernel to the next one of its stream
  double wait_ns = 0;            // more, behind a kernel of another stream
  double eager_op_ns = 0;        // of the host, for each op that it issues
  double graph_launch_ns = 0;    // of the host, for a whole replay

  uint32_t places() const { return sms * blocks_per_sm; }
};

// One kernel. Its work is divided evenly among its blocks.
struct GpuTask {
  double flops = 0;
  double bytes = 0;
  uint32_t blocks = 1;
};

struct GpuInterval {
  double begin_ns = 0;
  double end_ns = 0;
};

struct GpuRun {
  double total_ns = 0;               // from the host's first call on
  double idle_share = 0;             // of that: no kernel was running
  double sm_share = 0;               // of the SMs over that time: those that had a block
  std::vector<GpuInterval> kernels;  // by task
};

// The host issues the tasks one by one, in this order, on one stream.
GpuRun simulate_eager(const Gpu& gpu, const std::vector<GpuTask>& tasks);

// The host launches the streams of a schedule at once, as a captured graph. They must have every
// task once and must not lock up.
//
//   - A kernel starts when its stream and its waits let it, and its blocks are then given places:
//     kernels of more urgent streams first, then in the order they started; blocks wherever a place
//     is free. Blocks at work stay there.
//   - Blocks at work share arithmetic and bandwidth evenly; what one cannot use is left to the
//     others.
//
// `urgency` by stream, the smallest first; empty: all alike.
GpuRun simulate_replay(const Gpu& gpu, const std::vector<GpuTask>& tasks,
                       const std::vector<std::vector<Step>>& streams,
                       const std::vector<uint32_t>& urgency = {});

}  // namespace nimble
