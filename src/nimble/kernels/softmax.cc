#include "nimble/kernels/families.h"

namespace nimble {

std::vector<KernelPtr> softmax_candidates(const Softmax&, std::span<const TensorDesc>) { return {}; }
void softmax_reference(const Softmax&, std::span<const TensorDesc>, void* const*) {}
std::vector<KernelCase> softmax_test_cases() { return {}; }
std::vector<KernelCase> softmax_bench_cases() { return {}; }

}  // namespace nimble
