#pragma once

#include <Python.h>

namespace nimble {

// Lets other Python threads run. When the interpreter ends, Python kills threads that want its lock
// back, in the middle of C++ code; ours stop before they ask for it.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// From now on other threads stop at the end of their replay; returns when none is on its way back.
// For Python's atexit, with the GIL held.
void stop_replays_at_exit();

}  // namespace nimble
