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

// A number among the arguments of a call that every replay is told anew: a scalar, an element of a
// list of scalars, or a number that the framework wrapped as a tensor.
struct LiveSlot {
  uint32_t position = 0;
  int32_t element = -1;  // in a list; -1: the argument itself
  uint32_t value = 0;    // which of the live values
};

// One framework call, ready to be made again on other tensors.
struct RecordedCall {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;  // without their tensors
  std::vector<TensorSlot> tensors;     // which go here
  std::vector<ResultSlot> results;
  std::vector<LiveSlot> live = {};
  bool grad_mode = false;  // as it was: some kernels then keep more for a backward pass
};

// A trace with what only the framework can hold.
struct Recording {
  Trace trace;
  std::vector<RecordedCall> calls;            // by CallId
  c10::Device device = at::kCPU;              // where its ops ran, or most of them
  std::vector<c10::Device> devices;           // by BufferId
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
  std::vector<at::Tensor> written;           // and of what it wrote, see written_tensors()
  std::vector<double> live_values;           // as they were in the recorded run

  // Lets go of every tensor object that a replay does not hand out; their memory is still held.
  void release_tensors();
};

// What a run writes besides its results: those inputs, and all of that external memory.
std::vector<at::Tensor> written_tensors(const Recording& recording,
                                        const std::vector<at::Tensor>& inputs);

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

// Gradients that the run leaves in these tensors are seen to by whoever records it.
void carry_gradients(const std::vector<at::Tensor>& leaves);
// Of the program that is being recorded on this thread: from this output on, nobody holds one
// without the others.
void join_outputs_from(size_t first);
// Whether the run that is recorded on this thread found the tensor, or made it.
bool existed_before_recording(const at::Tensor& tensor);

// An argument that the program is about to pass to an op, of which some numbers are live values.
struct LiveArgument {
  bool is_list = false;
  std::vector<double> numbers;
  std::vector<int32_t> values;  // which live value each is; -1: none, it is a constant
};
// While a recording runs on this thread: which live numbers the next calls may be given. The
// recorder finds them by their bits, so they must differ from all other numbers.
void announce_live(std::vector<LiveArgument> arguments);
// The value of a tensor of one element, which no recorder notices.
double peek(const at::Tensor& tensor);

// Says where the user's program stands, for messages ("model.py:42"). The Python module sets it.
void set_source_locator(std::string (*locate)());

}  // namespace nimble
