#pragma once

namespace nimble {

// How many threads one framework op may use on the calling thread (OpenMP and MKL keep a count per
// thread). Sets it for a while and puts it back; the rest of the process notices nothing.
class IntraOpThreads {
 public:
  explicit IntraOpThreads(int threads);
  ~IntraOpThreads();
  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;

  // For good, on a thread that is ours.
  static void set_for_this_thread(int threads);

 private:
  int before_;
  bool changed_;
};

// How many threads an op may really use. One in a forked process: its parent's OpenMP threads do
// not exist there, and an op that wanted them would wait for ever.
int threads_in_this_process(int wanted);

}  // namespace nimble
