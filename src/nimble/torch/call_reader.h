#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "nimble/passes/rewrite.h"
#include "nimble/torch/recording.h"

namespace nimble {

// A tensor of the imported graph.
struct TensorRef {
  MemoryId memory;
  TensorDesc desc;
};

// Reads the arguments of one recorded call for its import, and writes what it is in our terms.
class CallReader {
 public:
  // `recorded` is the op of the recorded graph; its memories stand for those of `imported` through
  // `memory_of_value`.
  CallReader(const Recording& recording, const Op& recorded, const Graph& recorded_graph,
             Graph& imported, std::vector<MemoryId>& memory_of_value,
             const std::vector<bool>& value_is_needed, MemoryId& live_memory);

  const Op& op() const { return recorded_; }
  bool has(size_t position) const;  // a tensor or a value, not None
  bool is_tensor(size_t position) const;
  // float32 unless said otherwise; none if it is not there or of another type.
  std::optional<TensorRef> tensor(size_t position) const;
  std::optional<TensorRef> tensor_of_any_type(size_t position) const;
  std::vector<TensorRef> tensors(size_t position) const;  // of a list; empty if one does not fit
  // A Python number that became a tensor, or a scalar argument. Not to be asked for one that is
  // live.
  std::optional<double> number(size_t position) const;
  int64_t integer(size_t position) const;
  bool flag(size_t position) const;
  std::vector<int64_t> integers(size_t position) const;
  std::string text(size_t position) const;
  bool is_constant(const TensorRef& tensor) const;

  // The description of the one result that matters: an intermediate, or memory of the user, that
  // the call writes whole. None if it is not such a one, or if another result is used by somebody.
  std::optional<TensorDesc> result() const;

  // For calls on lists of tensors, which do the same for each element of them (_foreach_add_).
  // `element` -1: for any other call. An argument that is no list is the same for all elements.
  size_t elements() const;  // of its first argument; 0: it is no list
  std::optional<TensorRef> tensor_of(size_t position, int32_t element) const;
  std::optional<double> number_of(size_t position, int32_t element) const;
  // A number that every replay is told anew, as a tensor without dims; none if it is not one.
  std::optional<TensorRef> live_of(size_t position, int32_t element);
  size_t live_numbers_of(int32_t element) const;  // that it is given
  // What the call makes or changes for an element: written whole. None if it cannot be told apart
  // from what it does for the others.
  std::optional<TensorDesc> result_of(int32_t element) const;
  void emit_result_of(int32_t element, OpAttributes attributes,
                      const std::vector<TensorRef>& inputs, TensorDesc desc);

  // For calls with several results. The description of one of them: a new memory that the call
  // writes whole. None if there is none (a gradient that was not asked for).
  std::optional<TensorDesc> result(uint32_t position) const;
  bool is_used(uint32_t result) const;  // by anybody
  // Whether the call writes nothing but its results, and these arguments.
  bool writes_only_results(std::initializer_list<size_t> and_arguments = {}) const;

  // Adds an op of ours whose result is a new memory, seen as `desc`.
  TensorRef emit(OpAttributes attributes, const std::vector<TensorRef>& inputs, TensorDesc desc);
  // Where ops of ours may write a result of the call, seen as `desc`; or what lies in between.
  TensorRef make_result(uint32_t position, TensorDesc desc);
  TensorRef make_temporary(TensorDesc desc);
  // An argument that the call updates: to be written where it is.
  TensorRef updated(size_t position);
  // Adds an op of ours with any number of results; `updated` ones, behind them, are read as well.
  void emit_into(OpAttributes attributes, const std::vector<TensorRef>& inputs,
                 const std::vector<TensorRef>& results, const std::vector<TensorRef>& updated = {});
  // Adds the op of ours that makes the call's result, seen as `desc` (other dims, same elements).
  void emit_result(OpAttributes attributes, const std::vector<TensorRef>& inputs, TensorDesc desc);

 private:
  const TensorSlot* slot(size_t position, int32_t element = -1) const;
  const Operand* operand(ViewId view, bool written) const;
  std::optional<TensorRef> read(const TensorSlot& slot) const;
  const TensorSlot* slot_of(size_t position, int32_t element) const;
  const LiveSlot* live_slot(size_t position, int32_t element) const;
  const Operand* result_operand() const;
  const Operand* result_operand_of(int32_t element) const;
  const ResultSlot* result_slot(uint32_t position) const;
  MemoryId new_memory_for(const Operand& written);

  const Recording& recording_;
  const Op& recorded_;
  const RecordedCall& call_;
  const Graph& recorded_graph_;
  Graph& imported_;
  std::vector<MemoryId>& memory_of_value_;
  const std::vector<bool>& value_is_needed_;
  MemoryId& live_memory_;  // of the imported graph; none yet
};

}  // namespace nimble
