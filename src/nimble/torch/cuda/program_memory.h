#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "nimble/schedule/segments.h"
#include "nimble/torch/plan.h"

namespace nimble {

// Where the memories of a program are while its ops are issued, one by one. Inputs have memory of
// ours; parameters and constants are where they are; what an op makes is where the framework put
// it, until it is dropped.
class ProgramMemory {
 public:
  // `plan` must outlive it. What an op outside of the graphs makes stays where it was put first:
  // graphs know it by its address.
  ProgramMemory(const Plan& plan, const std::vector<Segment>& segments);

  // What stands for a recorded view among the arguments of an op. Memory that nobody has made so
  // far is allocated on the current stream.
  at::Tensor tensor(const Op& op, ViewId view);
  void take(const Op& op, const ResultSlot& slot, const at::Tensor& result);
  void drop(MemoryId memory) { storages_[memory.index] = {}; }
  // Everything that will be made anew when all ops are issued again.
  void drop_all();

  const c10::Storage& operator[](MemoryId memory) const { return storages_[memory.index]; }
  at::Tensor at(const Port& port) const;

 private:
  MemoryId memory_for(const Op& op, ViewId view) const;
  void allocate(MemoryId memory);

  const Plan& plan_;
  std::vector<c10::Storage> storages_;  // by MemoryId
  std::vector<bool> stays_;             // by MemoryId
};

}  // namespace nimble
