#include "nimble/runtime/timeline.h"

#include <cstdio>
#include <sstream>

namespace nimble {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// Writes events of the trace format, with commas between them.
class EventList {
 public:
  std::ostream& next() {
    out_ << (first_ ? "\n" : ",\n");
    first_ = false;
    return out_;
  }
  std::string finish() const { return "{\"traceEvents\":[" + out_.str() + "\n]}\n"; }

 private:
  std::ostringstream out_;
  bool first_ = true;
};

double in_microseconds(uint64_t ns) {
  return static_cast<double>(ns) / 1000.0;
}

}  // namespace

std::string timeline_json(const Schedule& schedule, const std::vector<TaskTime>& times) {
  EventList events;
  for (size_t s = 0; s < schedule.streams.size(); ++s)
    events.next() << R"({"ph":"M","pid":1,"name":"thread_name","tid":)" << s
                  << R"(,"args":{"name":"stream )" << s << "\"}}";
  std::vector<TaskTime> by_task(schedule.tasks.size());
  for (const TaskTime& time : times) {
    by_task[time.task.index] = time;
    const Task& task = schedule.tasks[time.task.index];
    events.next() << R"({"ph":"X","pid":1,"tid":)" << time.stream.index << R"(,"ts":)"
                  << in_microseconds(time.begin_ns) << R"(,"dur":)"
                  << in_microseconds(time.end_ns - time.begin_ns) << R"(,"name":)"
                  << quoted(task.label) << R"(,"args":{"module":)" << quoted(task.module)
                  << R"(,"task":)" << time.task.index << "}}";
  }
  size_t arrow = 0;
  for (const auto& stream : schedule.streams) {
    for (const Step& step : stream) {
      for (const Wait& wait : step.waits) {
        const TaskTime& from = by_task[schedule.streams[wait.stream.index][wait.step].task.index];
        const TaskTime& to = by_task[step.task.index];
        events.next() << R"({"ph":"s","pid":1,"name":"wait","cat":"wait","id":)" << arrow
                      << R"(,"tid":)" << from.stream.index << R"(,"ts":)"
                      << in_microseconds(from.end_ns) << "}";
        events.next() << R"({"ph":"f","bp":"e","pid":1,"name":"wait","cat":"wait","id":)" << arrow
                      << R"(,"tid":)" << to.stream.index << R"(,"ts":)"
                      << in_microseconds(to.begin_ns) << "}";
        ++arrow;
      }
    }
  }
  return events.finish();
}

}  // namespace nimble
