#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

namespace nimble {

// What a framework op does with its arguments, from its schema and, where the schema does not say
// or lies, from the tables in op_semantics.cc.

enum class ArgumentEffect : uint8_t {
  kRead,
  kUpdate,     // read and written
  kOverwrite,  // written, the old contents do not matter
  kIgnore,     // only its shape, strides or dtype are looked at
};

struct OpSemantics {
  // The framework breaks it into other ops by itself; the recorder looks at those instead.
  bool is_composite = false;
  // ... except on CUDA.
  bool is_one_op_on_cuda = false;
  // The same, but only where a gradient will be needed.
  bool is_composite_in_training = false;
  // Autocast casts its arguments before it runs.
  bool has_autocast_kernel = false;
  // Only makes memory, without contents.
  bool only_allocates = false;
  // Changes a tensor's shape or storage in place, not its data.
  bool only_changes_metadata = false;
  bool draws_random_numbers = false;
  // Why it cannot be replayed, whatever its arguments; empty if it can.
  std::string refusal;
  // By argument.
  std::vector<ArgumentEffect> effects;
};

// Whether autocast is on for this device and casts the op's arguments before it runs.
bool is_autocast(const c10::OperatorHandle& op, c10::DeviceType device);

// Cached; the reference stays valid.
const OpSemantics& semantics_of(const c10::OperatorHandle& op);

// Whether the op places its view at an absolute offset in the storage (as_strided).
bool has_absolute_offset(const c10::OperatorHandle& op, c10::ArrayRef<const c10::IValue> arguments);

// What the arguments of one call add: writes of training-mode batch norm, a boolean mask as index.
std::vector<ArgumentEffect> effects_of_call(const c10::OperatorHandle& op,
                                            c10::ArrayRef<const c10::IValue> arguments);
std::string refusal_of_call(const c10::OperatorHandle& op,
                            c10::ArrayRef<const c10::IValue> arguments);

}  // namespace nimble
