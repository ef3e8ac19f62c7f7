#include "nimble/runtime/replayer.h"

namespace nimble {

void replay_sequentially(const std::vector<TaskBinding>& bindings) {
  for (const TaskBinding& binding : bindings) binding.run(binding.context);
}

}  // namespace nimble
