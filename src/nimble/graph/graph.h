#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nimble/base/byte_set.h"
#include "nimble/base/ids.h"
#include "nimble/base/op_attributes.h"
#include "nimble/base/part.h"
#include "nimble/trace/trace.h"

namespace nimble {

// The program in SSA form.
//
// A *value* is one version of a buffer. A write that covers the whole buffer starts a new value;
// a partial write changes the current value in place. A *memory* is what has to stay together in
// one piece: a write that covers an intermediate buffer without reading it starts a new memory, so
// that nothing has to wait for the old contents to be used up. An in-place update starts a new
// value in the same memory.

// The same tensor as it lay in memory and as it lies there now.
struct Relayout {
  TensorDesc from;
  TensorDesc to;
};

struct Memory {
  size_t bytes = 0;
  Role role = Role::kIntermediate;
  BufferId buffer;
  bool is_output = false;
  bool is_updated = false;  // of Graph::updates: no constant, though no op writes it
  // Of a rewritten graph: the value of the recorded one that ops leave there. None: rewriting made
  // it, or it is there before the first op.
  ValueId recorded = {};
  std::optional<Relayout> relayout = {};  // none: it lies as it did when it was recorded
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
  std::optional<ByteSet> part_bytes =
      {};  // what a part of an op touches; none: what the view covers
};

// A framework call, or one of ours: then `attributes` says what it computes, on its first operands
// in the order given there. Behind them there may be one more, written: scratch memory.
struct Op {
  std::string name;
  std::string module;
  std::string source;
  std::vector<Operand> operands;
  CallId call = {};                             // of the framework; none for one of ours
  std::optional<OpAttributes> attributes = {};  // none for the framework's
  KernelId kernel = {};                         // chosen for one of ours
  std::optional<Part> part = {};                // which part of what `attributes` says; none: all
  uint32_t group = 0;                           // parts of one op have the same
};

// A view placed on a memory: what an input or output of the program is.
struct Port {
  MemoryId memory;
  ViewId view;
};

// What a memory of the user holds after the program. Rewriting is easier if nobody writes what
// others read: so it keeps its old contents, and its new ones are elsewhere, until
// `commit_updates`.
struct Update {
  MemoryId target;
  Port value;  // its memory is marked as an output
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
  std::vector<Op> ops;      // in program order; as built from a trace, OpId i is CallId i
  std::vector<Edge> edges;  // every read-after-write, write-after-read and write-after-write,
                            // sorted; what transitivity gives may be left out
  std::vector<Port> inputs;
  std::vector<Port> outputs;
  size_t first_joint_output = SIZE_MAX;  // as in the trace
  std::vector<Update> updates;
  std::vector<Op> constant_ops;  // need only constants: run ahead of time, in this order, into
                                 // memories of role kFolded

  const TensorDesc& desc_of(const Operand& operand) const { return views[operand.view.index].desc; }
  ByteSet bytes_touched(const Operand& operand) const {
    return operand.part_bytes ? *operand.part_bytes : bytes_of(desc_of(operand));
  }
};

}  // namespace nimble
