#pragma once

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cstdint>

namespace nimble {

// Calls visit(tensor, position, element) for every defined tensor among the values.
template <class Values, class Visitor>
void for_each_tensor(const Values& values, const Visitor& visit) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].isTensor()) {
      if (values[i].toTensor().defined()) visit(values[i].toTensor(), i, -1);
    } else if (values[i].isList()) {
      const auto& elements = values[i].toListRef();
      for (size_t e = 0; e < elements.size(); ++e)
        if (elements[e].isTensor() && elements[e].toTensor().defined())
          visit(elements[e].toTensor(), i, static_cast<int32_t>(e));
    }
  }
}

// The argument without its tensors, so that the recording does not keep their memory alive.
inline c10::IValue without_tensors(const c10::IValue& value) {
  if (value.isTensor()) return at::Tensor();
  if (!value.isList()) return value;
  const auto& elements = value.toListRef();
  if (std::none_of(elements.begin(), elements.end(), [](const auto& e) { return e.isTensor(); }))
    return value;
  c10::List<c10::IValue> list = value.toList().copy();
  for (size_t e = 0; e < list.size(); ++e)
    if (elements[e].isTensor()) list.set(e, at::Tensor());
  return list;
}

}  // namespace nimble
