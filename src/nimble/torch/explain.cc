#include "nimble/torch/explain.h"

#include <cstdio>
#include <sstream>

namespace nimble {
namespace {

std::string megabytes(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

std::string how(const Plan& plan, size_t op) {
  const CallBinding& binding = plan.bindings[op];
  const std::string name = c10::toString(binding.op.operator_name());
  if (plan.recording.calls[op].results.empty()) return name + " in place";
  switch (binding.policy) {
    case ResultPolicy::kOutVariant:
    case ResultPolicy::kPlannedAllocation:
      return name + " into planned memory";
    case ResultPolicy::kAdoption:
      break;
  }
  return name + ", result adopted";
}

std::vector<size_t> stream_of_tasks(const Schedule& schedule) {
  std::vector<size_t> stream_of(schedule.tasks.size());
  for (size_t s = 0; s < schedule.streams.size(); ++s)
    for (const Step& step : schedule.streams[s]) stream_of[step.task.index] = s;
  return stream_of;
}

}  // namespace

std::string explain(const Engine& engine) {
  const Schedule& schedule = engine.schedule();
  const PrepareReport& report = engine.report();
  std::ostringstream out;
  out << schedule.tasks.size() << " tasks on " << schedule.streams.size() << " stream"
      << (schedule.streams.size() == 1 ? "" : "s") << ", " << schedule.wait_count()
      << " waits, arena " << megabytes(schedule.arena_bytes) << " (framework's peak "
      << megabytes(engine.plan().recording.trace.framework_peak_bytes) << ")\n";
  if (report.many_streams_us > 0)
    out << "measured: one stream " << report.one_stream_us << " us, many streams "
        << report.many_streams_us << " us; kept " << (schedule.streams.size() > 1 ? "many" : "one")
        << "\n";
  else
    out << "one stream: nothing to run side by side, or one thread\n";
  out << "\n task stream   cost us  op and how it is replayed  [module]\n";
  const std::vector<size_t> stream_of = stream_of_tasks(schedule);
  for (size_t i = 0; i < schedule.tasks.size(); ++i) {
    char head[48];
    std::snprintf(head, sizeof head, "%5zu %6zu %9.1f  ", i, stream_of[i],
                  schedule.tasks[i].cost_ns / 1000);
    out << head << how(engine.plan(), i);
    if (!schedule.tasks[i].module.empty()) out << "  [" << schedule.tasks[i].module << "]";
    out << "\n";
  }
  return out.str();
}

std::string Recorded::explain() const {
  return nimble::explain(*engine_);
}

}  // namespace nimble
