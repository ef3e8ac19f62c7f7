"""torch.compile in the memory format that measures faster.

Inference is with frozen weights. In training model and loss are compiled, and the optimizer's step
too if that can be done and measures faster.
"""

import contextlib
import copy
import functools
import time

import torch

from nimble.bench.competitors import Prepared
from nimble.bench.memory_format import formats_of, inputs_in, job_in, model_in, quick_seconds

LABEL = "torch.compile"
REQUIRES = ()
FROM_ONNX = False


def prepare(model, inputs, setting):
    _configure(setting, freezing=True)
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


def prepare_training(job, batch, setting):
    _configure(setting, freezing=False)
    started = time.perf_counter()
    tried, failures = {}, {}
    for memory_format in formats_of(batch):
        used_s = time.perf_counter() - started
        if tried and 3 * used_s > setting.prepare_limit_s:
            break  # as above
        job_in(memory_format, job)
        loss = torch.compile(job.loss)
        steps = {
            "optimizer eager": job.optimizer.step,
            "optimizer compiled": torch.compile(job.optimizer.step),
        }
        for name, optimizer_step in steps.items():
            key = f"{memory_format}, {name}"
            bind = functools.partial(_bind_step, job, loss, optimizer_step, memory_format)
            try:
                call = bind(batch)
                call()
                prepare_s = time.perf_counter() - started - used_s
                tried[key] = quick_seconds(call), prepare_s, bind, memory_format
            except Exception as error:
                failures[key] = error
    if not tried:
        raise next(iter(failures.values()))
    best = min(tried, key=lambda key: tried[key][0])
    _, prepare_s, bind, memory_format = tried[best]
    job_in(memory_format, job)
    details = {"failures": {key: str(error)[:200] for key, error in failures.items()}}
    return Prepared(
        bind=bind,
        settings=best,
        mode=contextlib.nullcontext,
        same_draws=False,
        details=details,
        prepare_s=prepare_s,
    )


def _configure(setting, freezing):
    import torch._inductor.config as inductor

    inductor.freezing = freezing
    inductor.cpp_wrapper = True  # calls its kernels from C++, not from Python
    inductor.max_autotune = setting.max_autotune
    inductor.fx_graph_cache = False


def _bind_step(job, compiled_loss, optimizer_step, memory_format, batch):
    batch = inputs_in(memory_format, batch)

    def step():
        job.optimizer.zero_grad()
        loss = compiled_loss(*batch)
        loss.backward()
        optimizer_step()
        return loss.detach()

    return step
