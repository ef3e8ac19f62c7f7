#include "nimble/torch/inspection.h"

#include <numeric>

#include "nimble/base/error.h"
#include "nimble/graph/dump.h"
#include "nimble/graph/reorder_ops.h"
#include "nimble/kernels/fma_peak.h"
#include "nimble/runtime/timeline.h"
#include "nimble/schedule/build.h"
#include "nimble/schedule/capped_streams.h"
#include "nimble/schedule/described_gpus.h"
#include "nimble/schedule/launch_order.h"
#include "nimble/schedule/stream_assignment.h"
#include "nimble/schedule/verify.h"
#include "nimble/torch/gpu_work.h"
#include "nimble/torch/saved_state.h"

namespace nimble {

namespace {

// What is captured, in three steps; see cuda/graph_replay.cc.
void simulate_captured(const Gpu& gpu, const Graph& recorded, GpuSimulation& simulation) {
  std::vector<double> costs;  // of kernels alone
  for (const GpuInterval& kernel : simulation.one_stream.kernels)
    costs.push_back(kernel.end_ns - kernel.begin_ns);
  const auto capped = [&](const Graph& graph) {
    const Dag dag = dependency_dag(graph);
    const StreamAssignment streams =
        cap_streams(dag, assign_unbounded_streams(dag), kMostDeviceStreams, costs);
    return build_schedule(graph, urgent_first(dag, costs, streams), {}).schedule.streams;
  };
  simulation.capped = simulate_replay(gpu, estimate_gpu_work(recorded), capped(recorded));
  Graph graph = recorded;
  const std::vector<uint32_t> order =
      launch_order(dependency_dag(graph), costs, ops_that_compute(graph));
  reorder_ops(graph, order);
  std::vector<double> sorted_costs;
  for (uint32_t op : order) sorted_costs.push_back(costs[op]);
  costs = std::move(sorted_costs);
  const std::vector<std::vector<Step>> streams = capped(graph);
  const std::vector<GpuTask> tasks = estimate_gpu_work(graph);
  simulation.launch_order = simulate_replay(gpu, tasks, streams);
  std::vector<uint32_t> urgency(streams.size());
  std::iota(urgency.begin(), urgency.end(), 0);
  simulation.priorities = simulate_replay(gpu, tasks, streams, urgency);
}

}  // namespace

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
  simulate_captured(gpu, graph, simulation);
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
