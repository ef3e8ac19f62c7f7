#include "nimble/torch/intra_op.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>

namespace nimble {
namespace {

// The functions of the OpenMP and MKL that the framework itself uses; another copy of OpenMP in
// the process would not do.
struct ThreadLibraries {
  void (*omp_set)(int) = nullptr;
  int (*mkl_set_local)(int) = nullptr;  // returns the former count; 0 stands for "as OpenMP"

  ThreadLibraries() {
    void* framework = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!framework) return;
    omp_set = reinterpret_cast<void (*)(int)>(dlsym(framework, "omp_set_num_threads"));
    mkl_set_local = reinterpret_cast<int (*)(int)>(dlsym(framework, "MKL_Set_Num_Threads_Local"));
  }
};

const ThreadLibraries& libraries() {
  static const ThreadLibraries found;
  return found;
}

void set_threads(int threads) {
  if (libraries().omp_set) libraries().omp_set(threads);
  if (libraries().mkl_set_local) libraries().mkl_set_local(threads);
}

std::atomic<bool> forked = false;
const int fork_handler = pthread_atfork(nullptr, nullptr, [] { forked = true; });

}  // namespace

IntraOpThreads::IntraOpThreads(int threads) : before_(at::get_num_threads()) {
  changed_ = before_ != threads;
  if (changed_) set_threads(threads);
}

IntraOpThreads::~IntraOpThreads() {
  if (changed_) set_threads(before_);
}

void IntraOpThreads::set_for_this_thread(int threads) {
  at::get_num_threads();  // the framework sets its own count when a thread first asks
  set_threads(threads);
}

int threads_in_this_process(int wanted) {
  if (!forked) [[likely]]
    return wanted;
  // The framework remakes its own pool in a child at the first call that sets its count, without a
  // lock: that must have happened before helpers start.
  static const bool remade = [] {
    at::set_num_threads(at::get_num_threads());
    return true;
  }();
  (void)remade;
  return 1;
}

}  // namespace nimble
