"""Nimble with everything but streams: planned ahead, replayed one task after the other."""

import contextlib
import functools

import nimble
from nimble.bench.competitors import Prepared

LABEL = "Nimble, one stream"
REQUIRES = ()
FROM_ONNX = False


def prepare(model, inputs, setting, streams=1):
    engine = nimble.Nimble(model, streams=streams, threads=setting.threads).prepare(*inputs)
    return Prepared(
        bind=lambda inputs: functools.partial(engine, *inputs), **_described(engine.schedule)
    )


def prepare_training(job, batch, setting, streams=1):
    step = nimble.TrainStep(
        job.model, job.loss_fn, job.optimizer, streams=streams, threads=setting.threads
    )
    step(*batch)
    return Prepared(
        bind=lambda batch: functools.partial(step, *batch),
        mode=contextlib.nullcontext,
        **_described(step.schedule),
    )


def _described(plan):
    names = ("tasks", "framework_tasks", "streams", "waits", "arena_bytes", "peak_bytes")
    names = (*names, "framework_peak_bytes", "why_framework_kernels")
    return {
        "settings": f"{plan.streams} stream{'s' * (plan.streams > 1)}, {plan.tasks} tasks "
        f"({plan.framework_tasks} PyTorch's), holds {_mib(plan.peak_bytes)} at most "
        f"(eager {_mib(plan.framework_peak_bytes)})",
        "details": {name: getattr(plan, name) for name in names},
    }


def _mib(size):
    return f"{size / 2**20:.2f} MiB"
