#include "nimble/kernels/families.h"

namespace nimble {

std::vector<KernelPtr> copy_candidates(const Copy&, std::span<const TensorDesc>) { return {}; }
void copy_reference(const Copy&, std::span<const TensorDesc>, void* const*) {}
std::vector<KernelCase> copy_test_cases() { return {}; }
std::vector<KernelCase> copy_bench_cases() { return {}; }

}  // namespace nimble
