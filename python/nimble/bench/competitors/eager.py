"""PyTorch as it is, in the memory format that measures faster; inference in inference mode."""

import contextlib
import functools

import torch

from nimble.bench.competitors import Prepared
from nimble.bench.memory_format import formats_of, inputs_in, job_in, model_in, quick_seconds

LABEL = "PyTorch eager"
REQUIRES = ()
FROM_ONNX = False


def prepare(model, inputs, setting):
    formats = formats_of(inputs)

    def bind_in(memory_format, inputs):
        return functools.partial(model, *inputs_in(memory_format, inputs))

    def seconds(memory_format):
        model_in(memory_format, model)
        with torch.inference_mode():
            return quick_seconds(bind_in(memory_format, inputs))

    best = min(formats, key=seconds) if len(formats) > 1 else formats[0]
    model_in(best, model)
    return Prepared(
        bind=functools.partial(bind_in, best),
        settings=best,
        mode=torch.inference_mode,
        prepare_s=0.0,
    )


def prepare_training(job, batch, setting):
    formats = formats_of(batch)

    def bind_in(memory_format, batch):
        return functools.partial(job.step, *inputs_in(memory_format, batch))

    def seconds(memory_format):
        job_in(memory_format, job)
        return quick_seconds(bind_in(memory_format, batch))

    best = min(formats, key=seconds) if len(formats) > 1 else formats[0]
    job_in(best, job)
    return Prepared(
        bind=functools.partial(bind_in, best),
        settings=best,
        mode=contextlib.nullcontext,
        prepare_s=0.0,
    )
