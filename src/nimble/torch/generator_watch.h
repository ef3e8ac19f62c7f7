#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "nimble/torch/refusal.h"
#include "nimble/torch/saved_state.h"

namespace nimble {

// The random generators a run draws from. Random numbers that are drawn, or a seed that is set,
// without an op would not be replayed: the state before an op must be what the last one left.
class GeneratorWatch {
 public:
  // All must outlive this; `generators` is filled.
  GeneratorWatch(std::vector<at::Generator>& generators, SavedState& state, Refusal& refusal)
      : generators_(generators), saved_(state), refusal_(refusal) {}

  void draw_from(const at::Generator& generator) {
    if (std::find(generators_.begin(), generators_.end(), generator) != generators_.end()) return;
    generators_.push_back(generator);
    states_.push_back(saved_.save(generator));
  }

  void check(const std::string& source) const {
    for (size_t i = 0; i < generators_.size(); ++i)
      if (!at::equal(state_of(generators_[i]), states_[i]))
        refusal_.note("a random generator",
                      "it was seeded or drawn from by something that is no op", source);
  }

  // A random op has ended.
  void note_states() {
    for (size_t i = 0; i < generators_.size(); ++i) states_[i] = state_of(generators_[i]);
  }

 private:
  static at::Tensor state_of(at::Generator generator) {
    std::lock_guard lock(generator.mutex());
    return generator.get_state();
  }

  std::vector<at::Generator>& generators_;
  SavedState& saved_;
  Refusal& refusal_;
  std::vector<at::Tensor> states_;  // as the last random op left them
};

}  // namespace nimble
