"""Contiguous or channels last: PyTorch's own choice of layout, which its user has to make."""

import math
import time

import torch

_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def formats_of(inputs):
    """The names of the formats that make a difference for these inputs."""
    return list(_FORMATS) if any(x.dim() == 4 for x in inputs) else ["contiguous"]


def model_in(memory_format, model):
    """Converts the model in place, and returns it."""
    return model.to(memory_format=_FORMATS[memory_format])


def job_in(memory_format, job):
    """Converts the model of a job and its optimizer's state in place."""
    model_in(memory_format, job.model)
    for state in job.optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim() == 4:
                state[name] = value.contiguous(memory_format=_FORMATS[memory_format])


def inputs_in(memory_format, inputs):
    return tuple(
        x.contiguous(memory_format=_FORMATS[memory_format]) if x.dim() == 4 else x for x in inputs
    )


def quick_seconds(call, limit_s=0.5):
    """The best of a few calls, after two that warm up."""
    call(), call()
    best, end = math.inf, time.perf_counter() + limit_s
    while (start := time.perf_counter()) < end or best == math.inf:
        call()
        best = min(best, time.perf_counter() - start)
    return best
