#include "nimble/python/without_gil.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace nimble {
namespace {

std::atomic<bool> exiting = false;
std::atomic<int> running = 0;  // threads that are not stopped
std::thread::id exiting_thread;

void stop_if_exiting() {
  if (!exiting || std::this_thread::get_id() == exiting_thread) return;
  --running;
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace

WithoutGil::WithoutGil() : state_(PyEval_SaveThread()) {
  ++running;
  stop_if_exiting();
}

WithoutGil::~WithoutGil() {
  stop_if_exiting();
  PyEval_RestoreThread(state_);
  --running;
}

void stop_replays_at_exit() {
  exiting_thread = std::this_thread::get_id();
  exiting = true;
  PyThreadState* state = PyEval_SaveThread();
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (running > 0 && std::chrono::steady_clock::now() < patience)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  PyEval_RestoreThread(state);
}

}  // namespace nimble
