#pragma once

namespace nimble {

// What a thread gets from multiply-adds on registers alone, in 1e9 operations per second (a
// multiply-add counts two): the best of several short runs, on the best instruction set. Of several
// threads at the same time, the slowest one's: half of a lone one's where cores are shared.
double measure_fma_peak_gflops(int threads = 1);

}  // namespace nimble
