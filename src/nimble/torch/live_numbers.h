#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

#include "nimble/torch/recording.h"

namespace nimble {

// Finds live values among the arguments of calls, by their bits.
class LiveNumbers {
 public:
  void announce(std::vector<LiveArgument> arguments);
  std::vector<LiveSlot> find_in(c10::ArrayRef<const c10::IValue> arguments) const;
  // By live value: what was announced; 0 for a value that never was.
  const std::vector<double>& values() const { return values_; }

 private:
  std::optional<uint32_t> live_value_of(double number) const;

  std::vector<LiveArgument> announced_;
  std::vector<double> values_;
};

// A number that the framework wrapped as a tensor, as it does in `tensor * 0.5`.
std::optional<double> wrapped_number(const at::Tensor& tensor);

// `again` is the same program with other live values, `values`: what differs between the two must
// be just those. Otherwise says what differs; empty if nothing does.
std::string how_numbers_differ(const Recording& recording, const Recording& again,
                               const std::vector<double>& values);

}  // namespace nimble
