#include "nimble/schedule/schedule.h"

namespace nimble {

size_t Schedule::wait_count() const {
  size_t count = 0;
  for (const auto& stream : streams)
    for (const Step& step : stream) count += step.waits.size();
  return count;
}

}  // namespace nimble
