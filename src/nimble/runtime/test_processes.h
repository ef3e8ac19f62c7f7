#pragma once

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>
#include <thread>

// Forked children, threads that cannot be made, and what a thread is doing, for tests.

namespace nimble::testing {

#ifdef __SANITIZE_THREAD__
inline constexpr bool kChildMayStartThreads = false;  // ThreadSanitizer ends such a child
#else
inline constexpr bool kChildMayStartThreads = true;
#endif

// AddressSanitizer of this compiler does not know fork(): a child inherits the locks of its
// allocator that other threads held, and waits for them for ever.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kOthersMayAllocateDuringFork = false;
#else
inline constexpr bool kOthersMayAllocateDuringFork = true;
#endif

// Whether `claim` holds in a forked child. A child that hangs is killed and counts as false.
inline bool holds_in_child(const std::function<bool()>& claim) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    bool holds = false;
    try {
      holds = claim();
    } catch (...) {
    }
    _exit(holds ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// While it lives, no thread can be made: each wants a stack larger than the address space.
class NoNewThreads {
 public:
  NoNewThreads() {
    pthread_getattr_default_np(&usual_);
    pthread_attr_t impossible;
    pthread_attr_init(&impossible);
    pthread_attr_setstacksize(&impossible, size_t{1} << 47);
    pthread_setattr_default_np(&impossible);
    pthread_attr_destroy(&impossible);
  }
  ~NoNewThreads() {
    pthread_setattr_default_np(&usual_);
    pthread_attr_destroy(&usual_);
  }

 private:
  pthread_attr_t usual_;
};

inline pid_t this_thread_id() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

// Returns when the kernel says that the thread sleeps.
inline void wait_until_asleep(pid_t thread) {
  for (;;) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string line;
    std::getline(file, line);
    const size_t end_of_name = line.rfind(')');
    if (end_of_name != std::string::npos && line[end_of_name + 2] == 'S') return;
    std::this_thread::yield();
  }
}

}  // namespace nimble::testing
