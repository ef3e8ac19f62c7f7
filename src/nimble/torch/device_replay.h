#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "nimble/torch/folded_constants.h"
#include "nimble/torch/nimble.h"
#include "nimble/torch/plan.h"

namespace nimble {

// What a replay on a device shows of itself.
struct DeviceReport {
  size_t graphs = 0;                 // that are launched
  size_t graph_nodes = 0;            // kernels, copies and fills in them
  size_t pool_bytes = 0;             // of device memory that they hold
  size_t folded_bytes = 0;           // of constants that were folded
  std::vector<std::string> outside;  // ops between them, and why
};

// A recorded program on a device that runs by itself, behind the host. Safe to call from several
// threads: calls follow one another on the device.
class DeviceReplay {
 public:
  virtual ~DeviceReplay() = default;
  // Inputs must have been checked; `live` are all of the program's live numbers.
  virtual std::vector<at::Tensor> run(c10::ArrayRef<at::Tensor> inputs,
                                      c10::ArrayRef<double> live) = 0;
  virtual const PlannedSchedule& planned() const = 0;
  virtual const DeviceReport& report() const = 0;
  // An external tensor that is no longer where the graphs read it, or empty.
  virtual std::string moved_tensor() const = 0;
};

// What is captured.
struct CudaProgram {
  Plan& plan;  // its ops are sorted into segments; must outlive the replay
  const std::vector<at::Tensor>& inputs;  // an example
  const Options& options;
  std::shared_ptr<FoldedConstants> constants = nullptr;  // of the plan, if it has some
  bool launch_order = true;  // ops are issued by measured costs; false: as they were recorded
};

}  // namespace nimble
