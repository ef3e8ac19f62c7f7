#include "nimble/kernels/families.h"

namespace nimble {

std::vector<KernelPtr> layer_norm_candidates(const LayerNorm&, std::span<const TensorDesc>) { return {}; }
void layer_norm_reference(const LayerNorm&, std::span<const TensorDesc>, void* const*) {}
std::vector<KernelCase> layer_norm_test_cases() { return {}; }
std::vector<KernelCase> layer_norm_bench_cases() { return {}; }

}  // namespace nimble
