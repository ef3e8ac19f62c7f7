#include "nimble/torch/inspection.h"

#include "nimble/base/error.h"
#include "nimble/graph/dump.h"
#include "nimble/kernels/fma_peak.h"
#include "nimble/runtime/timeline.h"
#include "nimble/schedule/build.h"
#include "nimble/schedule/described_gpus.h"
#include "nimble/schedule/stream_assignment.h"
#include "nimble/schedule/verify.h"
#include "nimble/torch/gpu_work.h"
#include "nimble/torch/saved_state.h"

namespace nimble {

LogicalConcurrency logical_concurrency(const Engine& engine) {
  const Dag dag = dependency_dag(engine.recorded_graph());
  const Reachability reachability(dag);
  const Dag reduced = minimum_equivalent_graph(dag, reachability);
  const StreamAssignment assignment = assign_unbounded_streams(dag);
  return {degree_of_concurrency(reachability, dag.size()), assignment.streams.size(),
          count_waits(reduced, assignment), reduced.edge_count()};
}

std::vector<std::string> verify(const Engine& engine) {
  return verify_schedule(engine.schedule());
}

std::string graph_text(const Engine& engine) {
  return dump_text(engine.plan().graph);
}

std::string graph_dot(const Engine& engine) {
  return dump_dot(engine.plan().graph);
}

std::string timeline(Engine& engine, const std::vector<at::Tensor>& inputs) {
  if (engine.device())
    throw UserError(
        "a graph on CUDA runs as a whole: use torch.profiler or Nsight Systems to see "
        "when its kernels ran");
  SavedState state;  // what the program changes is not part of looking at it
  for (const at::Tensor& tensor : engine.plan().recording.written_externals)
    state.save(tensor.storage());
  for (const at::Generator& generator : engine.plan().recording.generators) state.save(generator);
  // As in a loop of calls: threads awake, caches warm.
  constexpr int kCallsBefore = 3;
  for (int call = 0; call < kCallsBefore; ++call)
    engine.run(inputs, engine.plan().recording.live_values);
  return timeline_json(engine.schedule(), engine.run_timed(inputs));
}

GpuSimulation simulate_on_gpu(const Engine& engine, const std::string& name) {
  const Gpu gpu = described_gpu(name);
  const Graph& graph = engine.recorded_graph();
  const std::vector<GpuTask> tasks = estimate_gpu_work(graph);
  const auto schedule_of = [&](const StreamAssignment& assignment) {
    return build_schedule(graph, assignment, {}).schedule;
  };
  const Schedule one = schedule_of(single_stream(graph));
  const Schedule many = schedule_of(assign_unbounded_streams(dependency_dag(graph)));

  GpuSimulation simulation;
  for (const GpuTask& task : tasks) {
    simulation.flops += task.flops;
    simulation.bytes += task.bytes;
  }
  simulation.streams = many.streams.size();
  simulation.waits = many.wait_count();
  simulation.eager = simulate_eager(gpu, tasks);
  simulation.one_stream = simulate_replay(gpu, tasks, one.streams);
  simulation.many_streams = simulate_replay(gpu, tasks, many.streams);
  std::vector<TaskTime> times;
  for (size_t stream = 0; stream < many.streams.size(); ++stream)
    for (const Step& step : many.streams[stream]) {
      const GpuInterval& kernel = simulation.many_streams.kernels[step.task.index];
      times.push_back({step.task, StreamId(stream), static_cast<uint64_t>(kernel.begin_ns),
                       static_cast<uint64_t>(kernel.end_ns)});
    }
  simulation.timeline = timeline_json(many, times);
  return simulation;
}

double fma_peak_gflops(int threads) {
  if (threads < 1) throw UserError(message("threads must be at least 1, not ", threads));
  return measure_fma_peak_gflops(threads);
}

}  // namespace nimble
