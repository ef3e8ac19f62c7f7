#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nimble/torch/nimble.h"
#include "nimble/trace/trace.h"

namespace nimble {

// Where a tensor stands among the arguments or results of a call.
struct TensorSlot {
  uint32_t position = 0;
  int32_t element = -1;  // in a list; -1: the argument itself
  ViewId view;
};

// A tensor that a call makes.
struct ResultSlot : TensorSlot {
  int32_t allocation = -1;  // which of the call's allocations it is; -1: unknown
};

// One framework call, ready to be made again on other tensors.
struct RecordedCall {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;  // without their tensors
  std::vector<TensorSlot> tensors;     // which go here
  std::vector<ResultSlot> results;
};

// A trace with what only the framework can hold.
struct Recording {
  Trace trace;
  std::vector<RecordedCall> calls;            // by CallId
  std::vector<c10::Storage> storages;         // by BufferId: externals and constants
  std::vector<at::Tensor> external_tensors;   // by BufferId: as the program used it first
  std::vector<at::Tensor> written_externals;  // their version counters follow every replay
  std::vector<bool> input_is_written;         // by input
  std::vector<bool> input_offset_matters;     // by input: it is viewed at an absolute offset
  std::vector<std::optional<TensorDesc>> input_reshaped;  // by input: its shape after the run
  std::vector<bool> output_is_uninitialised;              // by output: allocated, never written
  std::vector<bool> output_is_whole_tensor;  // by output: it is an input or external, not a view
  std::vector<at::Generator> generators;     // that it drew from
  std::vector<at::Tensor> outputs;           // copies of what the recorded run returned

  // Lets go of every tensor object that a replay does not hand out; their memory is still held.
  void release_tensors();
};

// Runs `function` once on copies of `inputs` and records the calls it makes below autograd.
// Whatever the run wrote that existed before (parameters, running statistics, generators) is put
// back, whether it succeeds or throws. Throws Refused for what cannot be replayed.
// `names` says what to call tensors that existed before.
Recording record_calls(const TensorFunction& function, const std::vector<at::Tensor>& inputs,
                       const NamedTensors& names = {});

// Whether a recording runs on this thread.
bool is_recording();
// While a recording runs on this thread: which module the program is in. No-ops otherwise.
void enter_module(std::string name);
void leave_module();
// Notes that the program did what no replay can do; the recording ends with this reason.
void refuse_recording(const std::string& what, const std::string& why);

// Says where the user's program stands, for messages ("model.py:42"). The Python module sets it.
void set_source_locator(std::string (*locate)());

}  // namespace nimble
