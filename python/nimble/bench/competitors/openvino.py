"""OpenVINO, one stream for latency, with the inputs bound ahead."""

import functools

from nimble.bench.competitors import Prepared

LABEL = "OpenVINO"
REQUIRES = ("openvino",)
FROM_ONNX = True


def prepare(model, inputs, setting):
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(model),
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",  # else bfloat16 where the processor has it
            "INFERENCE_NUM_THREADS": setting.threads,
            "NUM_STREAMS": 1,
        },
    )

    def bind(inputs):
        request = compiled.create_infer_request()
        for place, tensor in enumerate(inputs):
            request.set_input_tensor(place, openvino.Tensor(tensor.numpy()))  # a copy of it
        return functools.partial(request.infer, share_outputs=True)

    return Prepared(bind=bind, settings="latency hint, f32, inputs bound")
