"""torch.compile with frozen weights, in the memory format that measures faster."""

import copy
import functools
import time

import torch

from nimble.bench.competitors import Prepared
from nimble.bench.memory_format import formats_of, inputs_in, model_in, quick_seconds

LABEL = "torch.compile"
REQUIRES = ()
FROM_ONNX = False


def prepare(model, inputs, setting):
    import torch._inductor.config as inductor

    inductor.freezing = True
    inductor.cpp_wrapper = True  # calls its kernels from C++, not from Python
    inductor.max_autotune = setting.max_autotune
    inductor.fx_graph_cache = False

    started = time.perf_counter()
    tried = {}
    for memory_format in formats_of(inputs):
        used_s = time.perf_counter() - started
        if tried and 3 * used_s > setting.prepare_limit_s:
            break  # a second compilation might not end in time
        # Frozen code keeps pointers to the weights, so that each format has weights of its own.
        model = model_in(memory_format, copy.deepcopy(model) if tried else model)
        bind = functools.partial(_bind_in, torch.compile(model), memory_format)
        with torch.no_grad():
            call = bind(inputs)
            call()
            prepare_s = time.perf_counter() - started - used_s
            tried[memory_format] = quick_seconds(call), prepare_s, bind

    best = min(tried, key=lambda memory_format: tried[memory_format][0])
    _, prepare_s, bind = tried[best]
    only = ", no time to try channels_last" if len(tried) < len(formats_of(inputs)) else ""
    searched = ", max_autotune" if setting.max_autotune else ""
    return Prepared(bind=bind, settings=f"freezing, {best}{searched}{only}", prepare_s=prepare_s)


def _bind_in(compiled, memory_format, inputs):
    return functools.partial(compiled, *inputs_in(memory_format, inputs))
