#pragma once

namespace nimble {

// What a task does: a function and its prepared arguments. It may throw.
struct TaskBinding {
  void (*run)(void* context) = nullptr;
  void* context = nullptr;
};

}  // namespace nimble
