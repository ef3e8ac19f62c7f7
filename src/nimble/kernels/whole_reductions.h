#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "nimble/kernels/kernel.h"

namespace nimble {

// The reductions of an op whose input and output have the same sizes (softmax, layer norm), in the
// order in which its rows contain them. Rows are those of the output (row_dims); where a reduced
// dim is one of them, the grain is as many rows as contain whole reductions.
class WholeReductions {
 public:
  // `reduced` by dim.
  WholeReductions(const TensorDesc& input, const TensorDesc& output,
                  const std::vector<bool>& reduced);

  const Work& work() const { return work_; }
  // Whether neighbouring reductions are neighbours in memory, in both tensors.
  bool side_by_side() const { return dims_.back().strides == std::array<int64_t, 2>{1, 1}; }
  // The distances, in the input and the output, from one reduction of a run to the next.
  const std::array<int64_t, 2>& step() const { return dims_.back().strides; }

  // Calls visit(input offset, output offset, count) for runs of reductions `step` apart.
  template <class Visit>
  void for_each_run(const Part& part, const Visit& visit) const {
    if (part.row_begin >= part.row_end) return;
    int64_t at = part.row_begin / grain_ * per_grain_;
    const int64_t end = (part.row_end + grain_ - 1) / grain_ * per_grain_;
    while (at < end) {
      std::array<int64_t, 2> offsets = {0, 0};
      int64_t rest = at;
      for (size_t d = dims_.size(); d-- > 0; rest /= dims_[d].size)
        for (size_t t = 0; t < 2; ++t) offsets[t] += rest % dims_[d].size * dims_[d].strides[t];
      const int64_t left = dims_.back().size - at % dims_.back().size;
      const int64_t count = left < end - at ? left : end - at;
      visit(offsets[0], offsets[1], count);
      at += count;
    }
  }

 private:
  struct Dim {
    int64_t size;
    std::array<int64_t, 2> strides;  // of the input, the output
  };
  std::vector<Dim> dims_;  // not reduced, the slowest first, joined where they can be; never empty
  Work work_;
  int64_t grain_ = 1;
  int64_t per_grain_ = 1;  // reductions
};

}  // namespace nimble
