#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "nimble/torch/plan.h"
#include "nimble/torch/weights.h"

namespace nimble {

// The constants that a plan of framework calls has folded: made from the user's parameters, which
// stay where they are, by ops of the framework on their device. They are always at the same
// address.
class FoldedConstants {
 public:
  // `plan` must outlive it. `named`: the user's tensors, whose versions are watched.
  FoldedConstants(const Plan& plan, const std::vector<at::Tensor>& named);

  // Makes them again on the current stream if a parameter was changed. Nothing that reads them may
  // be running, or be issued to another stream before this is waited for. Looks at samples of the
  // parameters, which waits for the current stream.
  void refresh();
  size_t bytes() const;

 private:
  void fill();

  const Plan& plan_;
  ParameterWatch watch_;
  std::vector<ParameterWatch::State> parameters_;  // that they were made from
};

}  // namespace nimble
