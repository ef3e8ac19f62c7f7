#include "nimble/torch/explain.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "nimble/base/error.h"

namespace nimble {
namespace {

std::string megabytes(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

std::string how(const Plan& plan, const Op& op) {
  if (!op.call.valid()) {
    std::string text =
        describe(*op.attributes) + " by " + plan.kernels[op.kernel.index].kernel->name();
    if (op.part)
      text += message(", rows ", op.part->row_begin, "-", op.part->row_end, ", columns ",
                      op.part->column_begin, "-", op.part->column_end);
    return text + "  (" + op.name + ")";
  }
  if (plan.recording.device.is_cuda()) return op.name;
  const CallBinding& binding = plan.bindings[op.call.index];
  const std::string name = c10::toString(binding.op.operator_name());
  if (plan.recording.calls[op.call.index].results.empty()) return name + " in place";
  switch (binding.policy) {
    case ResultPolicy::kOutVariant:
    case ResultPolicy::kPlannedAllocation:
      return name + " into planned memory";
    case ResultPolicy::kAdoption:
      break;
  }
  return name + ", result adopted";
}

// Of a task by a kernel of ours, what selection measured for its share of the op; 0: not known.
double cost_alone_ns(const Plan& plan, const Op& op) {
  if (op.call.valid()) return 0;
  const KernelChoice& choice = plan.kernels[op.kernel.index];
  if (!op.part) return choice.ns;
  const auto elements = [](const Part& part) {
    return static_cast<double>(part.row_end - part.row_begin) *
           static_cast<double>(part.column_end - part.column_begin);
  };
  return choice.ns * elements(*op.part) / elements(choice.kernel->work().whole());
}

size_t count_framework_ops(const Graph& graph) {
  return static_cast<size_t>(std::count_if(graph.ops.begin(), graph.ops.end(),
                                           [](const Op& op) { return op.call.valid(); }));
}

// What was done to the program, and which kernels were considered for its ops.
void write_native(std::ostream& out, const Engine& engine) {
  const PrepareReport& report = engine.report();
  const Plan& plan = engine.plan();
  if (!report.why_framework_kernels.empty()) {
    out << "framework kernels: " << report.why_framework_kernels << "\n";
    return;
  }
  const size_t left = count_framework_ops(plan.graph);
  out << engine.recorded_graph().ops.size() << " recorded ops; " << left
      << " framework ops left; packed and folded weights " << megabytes(engine.weight_bytes())
      << "\n\npasses:";
  for (const PassRecord& pass : report.passes)
    if (pass.ops_before != pass.ops_after)
      out << " " << pass.name << " " << pass.ops_before << "->" << pass.ops_after << ";";
  out << "\n\nkernels chosen for " << report.distinct_ops
      << " distinct ops (us on one thread, * the choice):\n";
  std::vector<size_t> uses(plan.kernels.size());
  std::vector<const Op*> example(plan.kernels.size());
  for (const Op& op : plan.graph.ops) {
    if (op.call.valid()) continue;
    if (op.part && (op.part->row_begin != 0 || op.part->column_begin != 0)) continue;
    ++uses[op.kernel.index];
    example[op.kernel.index] = &op;
  }
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    if (!example[k]) continue;
    const Op& op = *example[k];
    out << "  " << uses[k] << "x " << describe(*op.attributes);
    for (const Operand& operand : op.operands)
      out << " " << plan.graph.desc_of(operand).to_string();
    out << ":";
    for (const KernelChoice::Candidate& candidate : plan.kernels[k].candidates) {
      char time[32];
      std::snprintf(time, sizeof time, " %.1f", candidate.ns / 1000);
      out << "  " << candidate.name << time
          << (candidate.name == plan.kernels[k].kernel->name() ? "*" : "");
      if (candidate.error > 1e-4) out << " (off by " << candidate.error << ")";
    }
    out << "\n";
  }
}

// What is in graphs, and what is not.
void write_device(std::ostream& out, const Engine& engine) {
  const DeviceReport& report = engine.device()->report();
  const Schedule& schedule = engine.schedule();
  out << schedule.tasks.size() << " tasks on " << schedule.streams.size() << " streams, "
      << schedule.wait_count() << " waits, " << engine.plan().recording.device.str() << "; "
      << report.graph_nodes << " nodes in " << report.graphs << " graphs, memory "
      << megabytes(report.pool_bytes) << " (framework's peak "
      << megabytes(engine.plan().recording.trace.framework_peak_bytes) << ")\n";
  for (const ConsideredPlan& plan : engine.report().considered) {
    out << plan.name << ": ";
    if (!plan.why_dropped.empty())
      out << "dropped: " << plan.why_dropped << "\n";
    else
      out << plan.us << " us, instead of " << plan.present_us
          << " us: " << (plan.kept ? "kept" : "dropped") << "\n";
  }
  for (const std::string& op : report.outside) out << "in no graph: " << op << "\n";
}

std::vector<size_t> stream_of_tasks(const Schedule& schedule) {
  std::vector<size_t> stream_of(schedule.tasks.size());
  for (size_t s = 0; s < schedule.streams.size(); ++s)
    for (const Step& step : schedule.streams[s]) stream_of[step.task.index] = s;
  return stream_of;
}

void write_tasks(std::ostream& out, const Engine& engine) {
  const Schedule& schedule = engine.schedule();
  out << "\n task " << (engine.device() ? "stream" : "worker")
      << "   cost us  alone us  op and how it is replayed  [module]\n";
  const std::vector<size_t> stream_of = stream_of_tasks(schedule);
  for (size_t i = 0; i < schedule.tasks.size(); ++i) {
    const Op& op = engine.plan().graph.ops[i];
    char head[64];
    std::snprintf(head, sizeof head, "%5zu %6zu %9.1f %9.1f  ", i, stream_of[i],
                  schedule.tasks[i].cost_ns / 1000, cost_alone_ns(engine.plan(), op) / 1000);
    out << head << how(engine.plan(), op);
    if (!schedule.tasks[i].module.empty()) out << "  [" << schedule.tasks[i].module << "]";
    out << "\n";
  }
}

}  // namespace

std::string explain(const Engine& engine) {
  const Schedule& schedule = engine.schedule();
  const PrepareReport& report = engine.report();
  std::ostringstream out;
  if (engine.device()) {
    write_device(out, engine);
    write_tasks(out, engine);
    return out.str();
  }
  const size_t workers = schedule.streams.size();
  out << schedule.tasks.size() << " tasks on "
      << (workers == 1          ? "one worker"
          : report.many_streams ? message(workers, " streams")
                                : message("one stream, divided among ", workers, " workers"))
      << ", " << schedule.wait_count() << " waits, arena " << megabytes(schedule.arena_bytes)
      << " (framework's peak " << megabytes(engine.plan().recording.trace.framework_peak_bytes)
      << ")\n";
  if (report.many_streams_us > 0)
    out << "measured: one stream " << report.one_stream_us << " us, many streams "
        << report.many_streams_us << " us; kept " << (report.many_streams ? "many" : "one") << "\n";
  else
    out << "one stream: nothing to run side by side, or one thread\n";
  write_native(out, engine);
  write_tasks(out, engine);
  return out.str();
}

std::string Recorded::explain() const {
  return nimble::explain(*engine_);
}

}  // namespace nimble
