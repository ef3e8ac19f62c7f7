#include "nimble/kernels/families.h"

#include <type_traits>

namespace nimble {
namespace {

template <class Attributes, size_t kIndex = 0>
constexpr size_t index_of() {
  if constexpr (std::is_same_v<std::variant_alternative_t<kIndex, OpAttributes>, Attributes>)
    return kIndex;
  else
    return index_of<Attributes, kIndex + 1>();
}

template <class Attributes>
KernelFamily make_family(const char* name,
                         std::vector<KernelPtr> (*)(const Attributes&,
                                                    std::span<const TensorDesc>)) {
  KernelFamily family{};
  family.name = name;
  family.kind = index_of<Attributes>();
  return family;
}

// For an op without a single result element.
class NothingToDo : public Kernel {
 public:
  std::string name() const override { return "nothing to do"; }
  Work work() const override { return {0, 0, 0, 0}; }
  void run(const KernelArguments&) const override {}
};

}  // namespace

std::span<const KernelFamily> kernel_families() {
  static const auto families = [] {
    std::vector<KernelFamily> list;
#define NIMBLE_LIST_FAMILY(name, Attributes)                                                       \
  list.push_back(make_family<Attributes>(#name, name##_candidates));                               \
  list.back().candidates = [](const OpAttributes& attributes,                                      \
                              std::span<const TensorDesc> operands) {                              \
    return name##_candidates(std::get<Attributes>(attributes), operands);                          \
  };                                                                                               \
  list.back().reference = [](const OpAttributes& attributes, std::span<const TensorDesc> operands, \
                             void* const* data) {                                                  \
    name##_reference(std::get<Attributes>(attributes), operands, data);                            \
  };                                                                                               \
  list.back().test_cases = name##_test_cases;                                                      \
  list.back().bench_cases = name##_bench_cases;
    NIMBLE_KERNEL_FAMILIES(NIMBLE_LIST_FAMILY)
#undef NIMBLE_LIST_FAMILY
    return list;
  }();
  return families;
}

std::vector<KernelPtr> kernel_candidates(const OpAttributes& attributes,
                                         std::span<const TensorDesc> operands) {
  if (operands.back().numel() == 0) return {std::make_shared<NothingToDo>()};
  for (const KernelFamily& family : kernel_families())
    if (family.kind == attributes.index()) return family.candidates(attributes, operands);
  return {};
}

bool compute_reference(const OpAttributes& attributes, std::span<const TensorDesc> operands,
                       void* const* data) {
  for (const KernelFamily& family : kernel_families()) {
    if (family.kind != attributes.index()) continue;
    family.reference(attributes, operands, data);
    return true;
  }
  return false;
}

}  // namespace nimble
