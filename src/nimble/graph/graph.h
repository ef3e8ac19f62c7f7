#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nimble/base/ids.h"
#include "nimble/trace/trace.h"

namespace nimble {

// The program in SSA form.
//
// A *value* is one version of a buffer. A write that covers the whole buffer starts a new value;
// a partial write changes the current value in place. A *memory* is what has to stay together in
// one piece: a write that covers an intermediate buffer without reading it starts a new memory, so
// that nothing has to wait for the old contents to be used up. An in-place update starts a new
// value in the same memory.

struct Memory {
  size_t bytes = 0;
  Role role = Role::kIntermediate;
  BufferId buffer;
  bool is_output = false;
};

struct Value {
  MemoryId memory;
  OpId producer;              // none: was there before the first op
  std::vector<OpId> readers;  // in program order, each once
};

// One use of a value by an op, through a view.
struct Operand {
  ValueId before;  // what it reads or changes; none for an overwrite of a new memory
  ValueId after;   // what it leaves; equal to `before` after a partial write; none for a read
  MemoryId memory;
  ViewId view;
  bool reads = false;
  bool writes = false;
};

struct Op {
  std::string name;
  std::string module;
  std::string source;
  std::vector<Operand> operands;
};

// A view placed on a memory: what an input or output of the program is.
struct Port {
  MemoryId memory;
  ViewId view;
};

struct Edge {
  OpId before;
  OpId after;
  auto operator<=>(const Edge&) const = default;
};

struct Graph {
  std::vector<View> views;  // as in the trace
  std::vector<Memory> memories;
  std::vector<Value> values;
  std::vector<Op> ops;      // in program order; OpId i is CallId i
  std::vector<Edge> edges;  // every read-after-write, write-after-read and write-after-write,
                            // sorted; what transitivity gives may be left out
  std::vector<Port> inputs;
  std::vector<Port> outputs;
};

}  // namespace nimble
