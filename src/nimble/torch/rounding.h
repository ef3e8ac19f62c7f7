#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "nimble/torch/recording.h"

namespace nimble {

// A run: what it was given, and what it gave. Results are outputs and, behind them, what was
// written.
struct Observed {
  std::vector<at::Tensor> inputs;
  std::vector<double> live;  // numbers that it was given
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> before;   // what it was to write
  std::vector<at::Tensor> written;  // the same, then

  size_t results() const { return outputs.size() + written.size(); }
  const at::Tensor& result(size_t i) const {
    return i < outputs.size() ? outputs[i] : written[i - outputs.size()];
  }
};

// Changes single precision by about one unit in the last place, up or down; for each variant other
// numbers up and others down.
void round_differently(const c10::Storage& floats, int variant = 0);

// The same program on copies of what it writes, beside which it can run itself.
Recording on_copies(const Recording& recording);
// The same program on copies of what it found, with parameters rounded differently.
Recording on_rounded_copies(const Recording& recording, int variant = 0);

// How a program of the framework responds to rounding: some amplify it, on values they were not
// made for.
class RoundingResponse {
 public:
  explicit RoundingResponse(const Observed& expected);

  // A run as `expected`, but from inputs and parameters that were rounded differently. What counts
  // is by how much a result moved at most. One run may say little: whether any unit changes sides
  // of a relu is chance.
  void add(const Observed& rounded);
  int runs() const { return runs_; }

  // By how much a result of a run on the same inputs is off.
  double difference(const Observed& run, size_t result) const;
  // Whether it is as near as other rounding would leave it.
  bool explains(double difference, size_t result) const;
  // Whether most of the results are: any may be further off by chance.
  bool explains_most(const Observed& run) const;
  // The largest number of a result, or by which it was changed.
  double size(size_t result) const { return sizes_[result]; }
  // By how much rounding alone moves a result, relative to its size.
  double own(size_t result) const { return moved_[result] / sizes_[result]; }

 private:
  bool is_noise(size_t result) const;

  const Observed& expected_;
  std::vector<double> sizes_;  // by result
  std::vector<double> moved_;  // by result
  int runs_ = 0;
  double noise_of_outputs_ = 0;  // what moves by less may be nothing but rounding
  double noise_of_changes_ = 0;  // likewise, of what was written
};

}  // namespace nimble
