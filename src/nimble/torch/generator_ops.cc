// Ops that save and restore the random generator. A program does so in Python, where a recording
// sees nothing of it (checkpointed segments draw the same numbers twice); as ops it is replayed.

#include <ATen/CPUGeneratorImpl.h>
#include <torch/library.h>

namespace nimble {
namespace {

at::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

TORCH_LIBRARY(nimble, library) {
  const std::vector<at::Tag> among_random_ops = {at::Tag::nondeterministic_seeded};
  library.def("generator_state() -> Tensor", among_random_ops);
  library.def("set_generator_state(Tensor state) -> ()", among_random_ops);
}

TORCH_LIBRARY_IMPL(nimble, CompositeExplicitAutograd, library) {
  library.impl("generator_state", generator_state);
  library.impl("set_generator_state", set_generator_state);
}

}  // namespace nimble
