"""ExecuTorch; what the XNNPACK backend takes is given to it."""

import functools

import torch

from nimble.bench.competitors import Prepared

LABEL = "ExecuTorch (XNNPACK)"
REQUIRES = ("executorch",)
FROM_ONNX = False


def prepare(model, inputs, setting):
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib

    portable_lib._unsafe_reset_threadpool(setting.threads)
    with torch.no_grad():
        program = to_edge_transform_and_lower(
            torch.export.export(model, inputs), partitioner=[XnnpackPartitioner()]
        ).to_executorch()
    buffer = program.buffer
    module = portable_lib._load_for_executorch_from_buffer(buffer)

    def bind(inputs, owner=buffer):  # the module only points into the buffer
        return functools.partial(module.forward, inputs)

    threads = portable_lib._threadpool_get_thread_count()
    return Prepared(
        bind=bind,
        settings=f"{threads} threads",
        details=_delegated(program),
    )


def _delegated(program):
    """How many instructions call XNNPACK, and how many a kernel of ExecuTorch itself."""
    plan = program.executorch_program.execution_plan[0]
    kinds = [type(i.instr_args).__name__ for chain in plan.chains for i in chain.instructions]
    return {
        "delegate_calls": kinds.count("DelegateCall"),
        "kernel_calls": kinds.count("KernelCall"),
    }
