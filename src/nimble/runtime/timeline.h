#pragma once

#include <string>
#include <vector>

#include "nimble/runtime/replayer.h"
#include "nimble/schedule/schedule.h"

namespace nimble {

// One replay as a trace that Perfetto and chrome://tracing open: one track per stream, one slice
// per task with its module, one arrow per wait.
std::string timeline_json(const Schedule& schedule, const std::vector<TaskTime>& times);

}  // namespace nimble
