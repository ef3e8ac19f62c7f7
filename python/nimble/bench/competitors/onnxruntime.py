"""ONNX Runtime, all graph optimizations, with inputs and outputs bound ahead."""

import functools

from nimble.bench.competitors import Prepared, as_tensors

LABEL = "ONNX Runtime"
REQUIRES = ("onnxruntime", "onnx")
FROM_ONNX = True


def prepare(model, inputs, setting):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = setting.threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def bind(inputs):
        binding = session.io_binding()
        for place, tensor in zip(session.get_inputs(), inputs, strict=True):
            value = onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy())
            binding.bind_ortvalue_input(place.name, value)
        for place in session.get_outputs():
            binding.bind_output(place.name)
        return functools.partial(_run, session.run_with_iobinding, binding)

    return Prepared(bind=bind, read=_read, settings="inputs and outputs bound")


def _run(run_with_iobinding, binding):
    run_with_iobinding(binding)
    return binding


def _read(binding):
    return as_tensors(binding.copy_outputs_to_cpu())
