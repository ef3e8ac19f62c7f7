"""Nimble runs a PyTorch model once, plans everything ahead of time, and then only replays.

    import nimble

    engine = nimble.Nimble(model).prepare(x)   # one model, one kind of input
    y = engine(x)

    fast = nimble.compile(model)               # prepares itself for each kind of input
    step = nimble.record(function, x)          # any function of tensors, a training step too
    step = nimble.TrainStep(model, loss, optimizer)  # one that is made for you
    torch.compile(model, backend="nimble")     # as a torch.compile backend
"""

from pathlib import Path

from nimble import _C, fused_optimizers
from nimble._C import NimbleError, Refused
from nimble.backend import torch_compile_backend
from nimble.engine import Nimble, compile, record
from nimble.schedule import Schedule
from nimble.train import TrainStep

#: For CMake: `-DCMAKE_PREFIX_PATH=$(python -c "import nimble; print(nimble.cmake_prefix_path)")`.
cmake_prefix_path = str(Path(_C.__file__).parent)

__all__ = [
    "Nimble",
    "NimbleError",
    "Refused",
    "Schedule",
    "TrainStep",
    "cmake_prefix_path",
    "compile",
    "record",
    "torch_compile_backend",
]
