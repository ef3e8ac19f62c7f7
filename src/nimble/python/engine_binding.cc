#include "nimble/python/engine_binding.h"

#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "nimble/base/error.h"
#include "nimble/python/errors.h"
#include "nimble/python/module_watch.h"
#include "nimble/python/without_gil.h"
#include "nimble/torch/cuda.h"
#include "nimble/torch/engine.h"
#include "nimble/torch/explain.h"
#include "nimble/torch/inspection.h"

namespace nimble {

namespace py = pybind11;
namespace {

// What programs share on CUDA; Python only hands it on.
struct SharedGraphMemory {
  std::shared_ptr<GraphMemory> memory = make_graph_memory();
};

// How the flat list of outputs is handed to Python.
enum class OutputForm { kSingle, kTuple, kList };

// An engine as a Python function of tensors: call(tuple) -> outputs. The shortest way in: no
// argument parsing, no structure.
struct FlatCall {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<ModuleWatch> watch;
  OutputForm form = OutputForm::kList;

  py::object operator()(PyObject* inputs) const {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(inputs);
    c10::SmallVector<at::Tensor, 8> tensors;
    for (Py_ssize_t i = 0; i < count; ++i)
      tensors.push_back(THPVariable_Unpack(PySequence_Fast_GET_ITEM(inputs, i)));
    if (const std::string what = watch->first_change(); !what.empty())
      throw UserError("the model changed since it was prepared: " + what +
                      " was replaced; call prepare() again");
    std::vector<at::Tensor> outputs;
    {
      WithoutGil no_gil;
      outputs = engine->run(tensors);
    }
    if (form == OutputForm::kSingle)
      return py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(outputs[0])));
    py::object result = py::reinterpret_steal<py::object>(
        form == OutputForm::kTuple ? PyTuple_New(outputs.size()) : PyList_New(outputs.size()));
    for (size_t i = 0; i < outputs.size(); ++i) {
      PyObject* wrapped = THPVariable_Wrap(std::move(outputs[i]));
      if (form == OutputForm::kTuple)
        PyTuple_SET_ITEM(result.ptr(), i, wrapped);
      else
        PyList_SET_ITEM(result.ptr(), i, wrapped);
    }
    return result;
  }
};

bool all_tensors(PyObject* values) {
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(values); ++i) {
    PyObject* value = PySequence_Fast_GET_ITEM(values, i);
    if (!THPVariable_CheckExact(value)) return false;
  }
  return true;
}

// Returns NotImplemented unless `arguments` is a tuple or list of plain tensors.
PyObject* call_flat(PyObject* self, PyObject* arguments) {
  try {
    if (!(PyTuple_CheckExact(arguments) || PyList_CheckExact(arguments)) || !all_tensors(arguments))
      return Py_NewRef(Py_NotImplemented);
    const auto* call = static_cast<const FlatCall*>(PyCapsule_GetPointer(self, nullptr));
    return (*call)(arguments).release().ptr();
  } catch (...) {
    translate_exception(std::current_exception());
    return nullptr;
  }
}

PyMethodDef call_flat_method = {"call", call_flat, METH_O,
                                "Replays on a tuple or list of tensors."};

py::object make_flat_call(const std::shared_ptr<Engine>& engine,
                          const std::shared_ptr<ModuleWatch>& watch, const std::string& form) {
  auto* call = new FlatCall{engine, watch,
                            form == "single"  ? OutputForm::kSingle
                            : form == "tuple" ? OutputForm::kTuple
                                              : OutputForm::kList};
  py::capsule self(call, [](void* pointer) { delete static_cast<FlatCall*>(pointer); });
  return py::reinterpret_steal<py::object>(PyCFunction_New(&call_flat_method, self.ptr()));
}

// The Python function as the engine sees it. The engine calls it without the GIL.
template <class Result>
std::function<Result(const std::vector<at::Tensor>&)> from_python(const py::function& function) {
  auto held = std::shared_ptr<py::function>(new py::function(function), [](py::function* f) {
    py::gil_scoped_acquire gil;
    delete f;
  });
  return [held](const std::vector<at::Tensor>& inputs) {
    py::gil_scoped_acquire gil;
    return py::cast<Result>((*held)(inputs));
  };
}

std::shared_ptr<Engine> make_engine(const py::function& function,
                                    const std::vector<at::Tensor>& inputs, int streams, int threads,
                                    bool borrowed_outputs, bool native_kernels, bool winograd,
                                    bool strict, const SharedGraphMemory* shared, bool keep_memory,
                                    const NamedTensors& names, const py::object& live) {
  const Options options{streams,
                        threads,
                        borrowed_outputs,
                        native_kernels,
                        winograd,
                        strict,
                        shared ? shared->memory : nullptr,
                        keep_memory};
  const TensorFunction program = from_python<std::vector<at::Tensor>>(function);
  const LiveFunction live_numbers =
      live.is_none() ? LiveFunction() : from_python<std::vector<double>>(live);
  WithoutGil no_gil;
  return std::make_shared<Engine>(program, inputs, options, names, live_numbers);
}

py::dict report_of(const Engine& engine) {
  const PrepareReport& report = engine.report();
  const Schedule& schedule = engine.schedule();
  py::dict facts;
  facts["tasks"] = schedule.tasks.size();
  facts["streams"] = report.many_streams ? schedule.streams.size() : 1;
  facts["workers"] = engine.device() ? 1 : schedule.streams.size();
  facts["framework_tasks"] =
      std::count_if(engine.plan().graph.ops.begin(), engine.plan().graph.ops.end(),
                    [](const Op& op) { return op.call.valid(); });
  facts["weight_bytes"] = engine.weight_bytes();
  facts["why_framework_kernels"] = report.why_framework_kernels;
  facts["waits"] = schedule.wait_count();
  facts["arena_bytes"] = schedule.arena_bytes;
  facts["arena_lower_bound_bytes"] = engine.planned().built.memory.lower_bound_bytes;
  facts["peak_bytes"] = engine.peak_bytes();
  facts["framework_peak_bytes"] = engine.plan().recording.trace.framework_peak_bytes;
  facts["intra_op_threads"] = engine.planned().intra_op_threads;
  facts["record_ms"] = report.record_ms;
  facts["plan_ms"] = report.plan_ms;
  facts["select_ms"] = report.select_ms;
  facts["measure_ms"] = report.measure_ms;
  facts["one_stream_us"] = report.one_stream_us;
  facts["many_streams_us"] = report.many_streams_us;
  facts["makespan_us"] = report.makespan_us;
  facts["makespan_lower_bound_us"] = report.makespan_lower_bound_us;
  facts["device"] = engine.plan().recording.device.str();
  const DeviceReport device = engine.device() ? engine.device()->report() : DeviceReport();
  facts["graphs"] = device.graphs;
  facts["graph_nodes"] = device.graph_nodes;
  facts["pool_bytes"] = device.pool_bytes;
  facts["outside_graphs"] = device.outside;
  py::list costs;
  for (const Task& task : schedule.tasks) costs.append(task.cost_ns / 1000);
  facts["costs_us"] = costs;
  return facts;
}

}  // namespace

void bind_engine(py::module_& module) {
  module.def("why_no_cuda", &why_no_cuda);
  module.def("instruction_sets", &instruction_sets);
  module.def("measure_fma_peak_gflops", &fma_peak_gflops, py::arg("threads") = 1,
             py::call_guard<py::gil_scoped_release>());
  py::class_<ModuleWatch, std::shared_ptr<ModuleWatch>>(module, "ModuleWatch")
      .def(py::init<>())
      .def("add_dict", &ModuleWatch::add_dict)
      .def("add_sequence", &ModuleWatch::add_sequence)
      .def("add_global", &ModuleWatch::add_global)
      .def("add_cell", &ModuleWatch::add_cell)
      .def("add_tensor", &ModuleWatch::add_tensor)
      .def("first_change", &ModuleWatch::first_change);
  py::class_<SharedGraphMemory>(module, "GraphMemory").def(py::init<>());
  py::class_<LogicalConcurrency>(module, "LogicalConcurrency")
      .def_readonly("degree", &LogicalConcurrency::degree)
      .def_readonly("streams", &LogicalConcurrency::streams)
      .def_readonly("waits", &LogicalConcurrency::waits)
      .def_readonly("edges", &LogicalConcurrency::edges);
  py::class_<GpuRun>(module, "GpuRun")
      .def_property_readonly("total_ms", [](const GpuRun& run) { return run.total_ns / 1e6; })
      .def_readonly("idle_share", &GpuRun::idle_share)
      .def_readonly("sm_share", &GpuRun::sm_share);
  py::class_<GpuSimulation>(module, "GpuSimulation")
      .def_readonly("flops", &GpuSimulation::flops)
      .def_readonly("bytes", &GpuSimulation::bytes)
      .def_readonly("streams", &GpuSimulation::streams)
      .def_readonly("waits", &GpuSimulation::waits)
      .def_readonly("eager", &GpuSimulation::eager)
      .def_readonly("one_stream", &GpuSimulation::one_stream)
      .def_readonly("many_streams", &GpuSimulation::many_streams)
      .def_readonly("capped", &GpuSimulation::capped)
      .def_readonly("launch_order", &GpuSimulation::launch_order)
      .def_readonly("priorities", &GpuSimulation::priorities)
      .def_readonly("timeline", &GpuSimulation::timeline);
  py::class_<Engine, std::shared_ptr<Engine>>(module, "Engine")
      .def(py::init(&make_engine))
      .def("flat_call", &make_flat_call)
      .def("report", &report_of)
      .def("run",
           [](Engine& engine, const std::vector<at::Tensor>& inputs,
              const std::vector<double>& live) {
             WithoutGil no_gil;
             return engine.run(inputs, live);
           })
      .def("moved_tensor", &Engine::moved_tensor)
      .def("explain", [](const Engine& engine) { return explain(engine); })
      .def("logical_concurrency", &logical_concurrency, py::call_guard<py::gil_scoped_release>())
      .def("simulate", &simulate_on_gpu, py::call_guard<py::gil_scoped_release>())
      .def("verify", &verify, py::call_guard<py::gil_scoped_release>())
      .def("graph_text", &graph_text)
      .def("graph_dot", &graph_dot)
      .def("timeline", [](Engine& engine, const std::vector<at::Tensor>& inputs) {
        WithoutGil no_gil;
        return timeline(engine, inputs);
      });
}

}  // namespace nimble
