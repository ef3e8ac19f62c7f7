#pragma once

#include <Python.h>

namespace nimble {

// Lets other Python threads run while C++ code works. When the interpreter ends, threads that still
// replay would meet a framework that is being taken down, and be killed when they want the GIL
// back: they stop here instead, before or after their replay.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// From now on other threads stop; returns when all have, or after ten seconds. For Python's atexit,
// with the GIL held.
void stop_replays_at_exit();

}  // namespace nimble
