#include "nimble/kernels/families.h"

namespace nimble {

std::vector<KernelPtr> reduce_candidates(const Reduce&, std::span<const TensorDesc>) { return {}; }
void reduce_reference(const Reduce&, std::span<const TensorDesc>, void* const*) {}
std::vector<KernelCase> reduce_test_cases() { return {}; }
std::vector<KernelCase> reduce_bench_cases() { return {}; }

}  // namespace nimble
