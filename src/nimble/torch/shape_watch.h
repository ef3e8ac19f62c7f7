#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "nimble/base/error.h"
#include "nimble/torch/buffer_table.h"

namespace nimble {

// Shapes that a run changes in place (unsqueeze_, set_): seen at once on what is its own. How it
// leaves its inputs is recorded; other tensors of the caller must end as they were.
class ShapeWatch {
 public:
  // All must outlive this.
  ShapeWatch(Recording& recording, BufferTable& table, SavedState& state, Refusal& refusal)
      : recording_(recording), table_(table), state_(state), refusal_(refusal) {}

  void watch_input(const at::Tensor& input) { input_bytes_.push_back(input.storage().nbytes()); }

  // An op is about to change its shape.
  void note_change(const at::Tensor& tensor, const std::string& op, const std::string& source) {
    if (table_.role(table_.buffer_of(tensor)) != Role::kExternal) return;
    state_.save_shape(tensor);
    externals_.push_back({tensor, describe(tensor), op, source});
  }

  // The run has ended.
  void check(const std::vector<at::Tensor>& inputs) {
    constexpr auto kWhy = "it changes the shape of a tensor of the caller";
    for (const Changed& external : externals_)
      if (!(describe(external.tensor) == external.before))
        refusal_.note(external.op, kWhy, external.source);
    recording_.input_reshaped.resize(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const View& view = recording_.trace.views[recording_.trace.inputs[i].index];
      const bool same_memory = table_.known(inputs[i]) &&
                               table_.buffer_of(inputs[i]) == view.buffer &&
                               inputs[i].storage().nbytes() == input_bytes_[i];
      if (!same_memory)
        refusal_.note(message("input ", i), kWhy, "");
      else if (!(describe(inputs[i]) == view.desc))
        recording_.input_reshaped[i] = describe(inputs[i]);
    }
  }

 private:
  struct Changed {
    at::Tensor tensor;
    TensorDesc before;
    std::string op;
    std::string source;
  };

  Recording& recording_;
  BufferTable& table_;
  SavedState& state_;
  Refusal& refusal_;
  std::vector<Changed> externals_;
  std::vector<size_t> input_bytes_;
};

}  // namespace nimble
