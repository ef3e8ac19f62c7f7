#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// Nimble for a libtorch program:
//
//   auto step = nimble::record(function, inputs);
//   std::vector<at::Tensor> y = step(inputs);
//
// `function` runs once; its tasks are planned ahead of time, and every later call only replays
// that plan on new values. Errors: see nimble/base/error.h.

namespace nimble {

class Engine;

// On CUDA: memory that graphs of several recorded programs use in turn, so that their replays never
// run at the same time.
class GraphMemory;
std::shared_ptr<GraphMemory> make_graph_memory();

struct Options {
  int streams = 0;                // 0: as many as measure fastest
  int threads = 0;                // 0: as many as the framework uses
  bool borrowed_outputs = false;  // outputs are overwritten by the next call
  bool native_kernels = true;     // ours where they measure faster; false: the framework's only
  bool winograd = true;           // allow 3x3 convolutions within 1e-3 instead of 1e-4 of eager
  bool strict = false;            // on CUDA: refuse what needs more than one graph
  std::shared_ptr<GraphMemory> graph_memory = nullptr;  // null: of its own
  bool keep_memory = false;  // on CUDA: no memory is used twice; what others are compared with
};

using TensorFunction =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;
// Numbers that the program computes anew at every call and gives to ops, as learning rates are:
// what they were in the last run of the program, had it been run on these inputs.
using LiveFunction = std::function<std::vector<double>(const std::vector<at::Tensor>& inputs)>;
// Tensors the program uses besides its inputs, with names for messages.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

class Recorded {
 public:
  explicit Recorded(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  // Safe to call from several threads at once.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const;
  // What is replayed, by which kernel, on which stream.
  std::string explain() const;
  const Engine& engine() const { return *engine_; }

 private:
  std::shared_ptr<Engine> engine_;
};

Recorded record(const TensorFunction& function, const std::vector<at::Tensor>& inputs,
                const Options& options = {});

}  // namespace nimble
