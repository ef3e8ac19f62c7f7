#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "nimble/base/ids.h"
#include "nimble/base/tensor_desc.h"

namespace nimble {

// What a recorded run did, as plain data: calls in program order, on views of buffers.

enum class Role {
  kInput,         // the caller's tensor: another address at every replay
  kExternal,      // existed before the run (a parameter, a running statistic): used at its address
  kConstant,      // made during the run by something that is not an op; never written afterwards
  kIntermediate,  // made by an op of the run; its memory is ours to plan
  kFolded,        // computed from constants ahead of time; ours, and there at every replay
  kLive,          // numbers (float32) that every replay is told anew; ours
  kGenerator,     // the state of the random generators; has no bytes, only an order
};

struct Buffer {
  size_t bytes = 0;
  Role role = Role::kIntermediate;
  std::string name;        // of a parameter or input, for people
  bool is_output = false;  // an intermediate that leaves the run: never shares its memory
};

struct View {
  BufferId buffer;
  TensorDesc desc;
};

// How a call touches one view.
struct Use {
  ViewId view;
  bool reads = false;
  bool writes = false;
};

struct Call {
  std::string op;      // "aten::convolution"
  std::string module;  // "cells.3.conv", where the program said so
  std::string source;  // "model.py:42", likewise
  std::vector<Use> uses;
};

struct Trace {
  std::vector<Buffer> buffers;
  std::vector<View> views;
  std::vector<Call> calls;
  std::vector<ViewId> inputs;
  std::vector<ViewId> outputs;
  // From this output on they are held and dropped together (gradients): they may share a storage's
  // memory. All of them by themselves otherwise.
  size_t first_joint_output = SIZE_MAX;
  size_t framework_peak_bytes = 0;  // the most memory the recorded run held at once

  const Buffer& buffer_of(ViewId view) const { return buffers[views[view.index].buffer.index]; }
};

}  // namespace nimble
