#include "nimble/kernels/families.h"

namespace nimble {

std::vector<KernelPtr> pad_candidates(const Pad&, std::span<const TensorDesc>) { return {}; }
void pad_reference(const Pad&, std::span<const TensorDesc>, void* const*) {}
std::vector<KernelCase> pad_test_cases() { return {}; }
std::vector<KernelCase> pad_bench_cases() { return {}; }

}  // namespace nimble
