#pragma once

#include <ATen/ATen.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "nimble/torch/allocation_log.h"
#include "nimble/torch/recording.h"
#include "nimble/torch/refusal.h"
#include "nimble/torch/saved_state.h"
#include "nimble/torch/tensor_conversion.h"

namespace nimble {

// Which memory a recorded run touched, whose it is, and what is known of its contents. Fills the
// buffers and views of a recording; everything it is given must outlive it.
//
// Identity is memory: a buffer is a storage. Storages are held weakly, so that an address is not
// taken for an older one while memory is freed as without a recorder.
class BufferTable {
 public:
  BufferTable(Recording& recording, const AllocationLog& allocations, SavedState& state,
              Refusal& refusal, const NamedTensors& names);

  bool known(const at::Tensor& tensor) const;
  // Adds what is not known: it was there before the run, or something that is no op made it.
  BufferId buffer_of(const at::Tensor& tensor);
  BufferId add_buffer(const c10::Storage& storage, Role role);
  ViewId view_of(const at::Tensor& tensor) { return add_view(buffer_of(tensor), describe(tensor)); }
  // What random ops have in common: an order, no bytes.
  ViewId generator_view();

  Buffer& operator[](BufferId buffer) { return recording_.trace.buffers[buffer.index]; }
  Role role(BufferId buffer) const { return recording_.trace.buffers[buffer.index].role; }

  // Allocated, and no op has written it.
  bool is_unwritten(BufferId buffer) const { return unwritten_[buffer.index]; }
  void set_unwritten(BufferId buffer) { unwritten_[buffer.index] = true; }
  // Its contents can differ from replay to replay.
  bool varies(BufferId buffer) const { return varies_[buffer.index]; }
  void set_varies(BufferId buffer, bool varies) { varies_[buffer.index] = varies; }
  // It comes from inside a composite op: if no op fills it, that op computed by itself.
  void note_unfilled(const at::Tensor& tensor, const std::string& op);
  void check_filled(const at::Tensor& tensor);

  // An op is about to write it: what the user owns is saved, what was filled by hand is kept.
  void note_write(BufferId buffer, const at::Tensor& tensor, bool reads);
  // An op reads it, or it leaves the run, though no op has written it.
  void make_constant(BufferId buffer, const at::Tensor& tensor);
  void make_writable(BufferId buffer, const at::Tensor& tensor);

  // When the run has ended: puts what fills buffers first before the recorded calls, and orders
  // calls that reach the same bytes through two storages.
  void finish();

 private:
  ViewId add_view(BufferId buffer, TensorDesc desc);
  ViewId whole_buffer(BufferId buffer);
  void order_shared_memory();

  Recording& recording_;
  const AllocationLog& allocations_;
  SavedState& state_;
  Refusal& refusal_;
  std::unordered_map<const c10::StorageImpl*, BufferId> buffers_;
  std::unordered_map<const c10::StorageImpl*, std::string> names_;
  std::unordered_map<const c10::StorageImpl*, std::string> unfilled_;  // by which op
  std::unordered_map<const void*, BufferId> addresses_;                // of results
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> watched_;     // by buffer
  std::vector<std::vector<ViewId>> views_of_;                          // by buffer
  std::vector<bool> unwritten_;                                        // by buffer
  std::vector<bool> varies_;                                           // by buffer
  std::vector<BufferId> saved_;
  BufferId generator_;
  std::vector<Call> prologue_;
  std::vector<RecordedCall> prologue_calls_;
};

}  // namespace nimble
