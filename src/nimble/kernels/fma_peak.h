#pragma once

namespace nimble {

// What one thread gets from multiply-adds on registers alone, in 1e9 operations per second (a
// multiply-add counts two): the best of several short runs, on the best instruction set.
double measure_fma_peak_gflops();

}  // namespace nimble
