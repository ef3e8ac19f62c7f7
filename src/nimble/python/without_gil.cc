#include "nimble/python/without_gil.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace nimble {
namespace {

std::atomic<bool> exiting = false;
std::atomic<int> on_their_way_back = 0;
std::thread::id exiting_thread;

}  // namespace

WithoutGil::~WithoutGil() {
  ++on_their_way_back;
  if (exiting && std::this_thread::get_id() != exiting_thread) {
    --on_their_way_back;
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  PyEval_RestoreThread(state_);
  --on_their_way_back;
}

void stop_replays_at_exit() {
  exiting_thread = std::this_thread::get_id();
  exiting = true;
  PyThreadState* state = PyEval_SaveThread();
  while (on_their_way_back > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  PyEval_RestoreThread(state);
}

}  // namespace nimble
