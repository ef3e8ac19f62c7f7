#include "nimble/schedule/described_gpus.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "nimble/base/error.h"

namespace nimble {
namespace {

// Data sheet: 80 SMs, 15.7 TFLOP/s in float32, 900 GB/s. Of the others, each says where it is from;
// none is fitted to a network.
Gpu v100() {
  Gpu gpu;
  gpu.name = "v100";
  gpu.sms = 80;
  // Blocks of 256 threads: 2048 threads on an SM.
  gpu.blocks_per_sm = 8;
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

struct Number {
  std::string_view name;
  double Gpu::*member;
};
constexpr Number kNumbers[] = {
    {"flops_per_ns", &Gpu::flops_per_ns},
    {"bytes_per_ns", &Gpu::bytes_per_ns},
    {"sm_bytes_per_ns", &Gpu::sm_bytes_per_ns},
    {"kernel_latency_ns", &Gpu::kernel_latency_ns},
    {"step_ns", &Gpu::step_ns},
    {"wait_ns", &Gpu::wait_ns},
    {"eager_op_ns", &Gpu::eager_op_ns},
    {"graph_launch_ns", &Gpu::graph_launch_ns},
};

double Gpu::*number_called(std::string_view name) {
  std::string known;
  for (const Number& number : kNumbers) {
    if (number.name == name) return number.member;
    known += message(' ', number.name);
  }
  throw UserError(message("a GPU has no '", name, "'; it has:", known));
}

double positive(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !std::isfinite(value) || value <= 0)
    throw UserError(message("'", text, "' is not a positive number"));
  return value;
}

}  // namespace

Gpu described_gpu(const std::string& description) {
  std::istringstream parts(description);
  std::string part;
  std::getline(parts, part, ',');
  if (part != "v100")
    throw UserError(message("no GPU called '", part, "' is described; there is: v100"));
  Gpu gpu = v100();
  while (std::getline(parts, part, ',')) {
    const size_t equals = std::min(part.find('='), part.size());
    double Gpu::*const member = number_called(part.substr(0, equals));
    gpu.*member = positive(part.substr(std::min(equals + 1, part.size())));
  }
  return gpu;
}

}  // namespace nimble
