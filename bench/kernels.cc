// How fast each kernel is on one thread:  kernels [--avx2] [family] [words of the description …]
//
// Prints GFLOP/s and the share of the machine's multiply-add peak, or GB/s where an op only moves
// bytes. Candidates of a case are timed in turns and the best time counts: machines are noisy. The
// peak is measured again with every case, in the same turns.

#include <hwy/targets.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "nimble/kernels/family.h"
#include "nimble/kernels/fma_peak.h"

namespace nimble {
namespace {

// Processor time of this thread: what other programs take does not count.
double now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct FreeAligned {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<std::byte, FreeAligned>;

Memory allocate(size_t bytes) {
  return Memory(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)));
}

// Numbers, or indices that every table has.
Memory make_operand(const TensorDesc& desc) {
  const size_t bytes = static_cast<size_t>(desc.end_byte());
  Memory memory = allocate(bytes);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> number(-1, 1);
  if (desc.dtype.name != "float32") {
    std::memset(memory.get(), 0, bytes);
    return memory;
  }
  for (size_t i = 0; i + 4 <= bytes; i += 4) {
    const float value = number(random);
    std::memcpy(memory.get() + i, &value, sizeof value);
  }
  return memory;
}

struct Timed {
  KernelPtr kernel;
  Memory packed;
  Memory scratch;
  KernelArguments arguments;
  double best = 1e30;
};

std::string shape_text(const KernelCase& test) {
  std::string text;
  for (const TensorDesc& desc : test.operands) {
    for (size_t d = 0; d < desc.sizes.size(); ++d)
      text += (d ? "x" : "") + std::to_string(desc.sizes[d]);
    text += " ";
  }
  return text;
}

double moved_bytes(const KernelCase& test) {
  double bytes = 0;
  for (const TensorDesc& desc : test.operands)
    bytes += static_cast<double>(desc.numel() * desc.dtype.bytes);
  return bytes;
}

void run_case(const KernelFamily& family, const KernelCase& test) {
  std::vector<Memory> operands;
  std::vector<void*> pointers;
  for (const TensorDesc& desc : test.operands) {
    operands.push_back(make_operand(desc));
    pointers.push_back(operands.back().get() + desc.begin_byte());
  }
  std::vector<Timed> list;
  for (const KernelPtr& kernel : family.candidates(test.attributes, test.operands)) {
    Timed timed{kernel,
                allocate(kernel->packed_bytes()),
                allocate(kernel->scratch_bytes(kernel->work().whole())),
                {}};
    kernel->pack(pointers.data(), timed.packed.get());
    timed.arguments = {pointers.data(), timed.packed.get(), timed.scratch.get(),
                       kernel->work().whole()};
    list.push_back(std::move(timed));
  }
  double peak = 0;
  constexpr double kTurnSeconds = 4e-3;
  for (int turn = 0; turn < 12; ++turn) {
    peak = std::max(peak, measure_fma_peak_gflops());
    for (Timed& timed : list) {
      timed.kernel->run(timed.arguments);
      double total = 0;
      while (total < kTurnSeconds) {
        // Short ones in batches, so that reading the clock does not count.
        const int batch = timed.best < 2e-6 ? 200 : timed.best < 5e-5 ? 10 : 1;
        const double begin = now();
        for (int i = 0; i < batch; ++i) timed.kernel->run(timed.arguments);
        const double seconds = now() - begin;
        timed.best = std::min(timed.best, seconds / batch);
        total += seconds;
      }
    }
  }
  const double operations = flops(test.attributes, test.operands);
  std::printf("%s  %s\n", describe(test.attributes).c_str(), shape_text(test).c_str());
  for (const Timed& timed : list) {
    if (operations > 0)
      std::printf("    %-32s %9.2f us %8.1f GFLOP/s  %5.1f %%\n", timed.kernel->name().c_str(),
                  timed.best * 1e6, operations / timed.best * 1e-9,
                  operations / timed.best * 1e-7 / peak);
    else
      std::printf("    %-32s %9.2f us %8.1f GB/s\n", timed.kernel->name().c_str(), timed.best * 1e6,
                  moved_bytes(test) / timed.best * 1e-9);
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--avx2") == 0) {
    hwy::SetSupportedTargetsForTest(HWY_AVX2);
    --argc;
    ++argv;
  }
  std::printf("one thread; multiply-add peak %.1f GFLOP/s\n", nimble::measure_fma_peak_gflops());
  for (const nimble::KernelFamily& family : nimble::kernel_families()) {
    if (argc > 1 && std::strcmp(argv[1], family.name) != 0) continue;
    for (const nimble::KernelCase& test : family.bench_cases()) {
      const std::string text = describe(test.attributes) + "  " + nimble::shape_text(test);
      bool wanted = true;
      for (int i = 2; i < argc; ++i) wanted &= text.find(argv[i]) != std::string::npos;
      if (wanted) nimble::run_case(family, test);
    }
  }
}
