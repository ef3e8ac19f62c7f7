#include "nimble/kernels/instruction_sets.h"

#include <hwy/targets.h>

namespace nimble {

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  // The lower the bit, the better.
  for (auto rest = static_cast<uint64_t>(hwy::SupportedTargets() & HWY_TARGETS); rest != 0;
       rest &= rest - 1)
    names.emplace_back(hwy::TargetName(static_cast<int64_t>(rest & -rest)));
  return names;
}

}  // namespace nimble
