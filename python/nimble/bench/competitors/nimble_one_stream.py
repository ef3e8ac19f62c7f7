"""Nimble with everything but streams: planned ahead, replayed one task after the other."""

import functools

import nimble
from nimble.bench.competitors import Prepared

LABEL = "Nimble, one stream"
REQUIRES = ()
FROM_ONNX = False


def prepare(model, inputs, setting, streams=1):
    engine = nimble.Nimble(model, streams=streams, threads=setting.threads).prepare(*inputs)
    plan = engine.schedule
    names = ("tasks", "framework_tasks", "streams", "waits", "arena_bytes", "peak_bytes")
    return Prepared(
        bind=lambda inputs: functools.partial(engine, *inputs),
        settings=f"{plan.streams} stream{'s' * (plan.streams > 1)}, {plan.tasks} tasks, "
        f"holds {_mib(plan.peak_bytes)} at most (eager {_mib(plan.framework_peak_bytes)})",
        details={name: getattr(plan, name) for name in (*names, "framework_peak_bytes")},
    )


def _mib(size):
    return f"{size / 2**20:.2f} MiB"
