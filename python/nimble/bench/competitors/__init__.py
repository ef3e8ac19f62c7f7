"""The competitors: one file each, with the same names in it.

    LABEL       how tables and charts call it
    REQUIRES    modules that must be installed
    FROM_ONNX   whether it takes the path of an ONNX file instead of the model
    prepare(model, inputs, setting) -> Prepared
    prepare_training(job, batch, setting) -> Prepared      if it trains; see training_workloads.Job

A file is imported by the parent too, `prepare` runs in a process of its own: so a library is
imported in there. `nimble bench --competitors` also takes modules of yours with these names.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import torch

#: In the order of tables and charts. Ours stand last.
PEERS = ("eager", "torch_compile", "onnxruntime", "openvino", "executorch", "tvm")
OURS = ("nimble_one_stream", "nimble_many_streams")
NAMES = (*PEERS, *OURS)
TRAINERS = ("eager", "torch_compile", *OURS)


@dataclass(frozen=True)
class Setting:
    """What `prepare` may use."""

    threads: int
    prepare_limit_s: float  # then it is given up
    tune_s: float  # for TVM to search for good code
    max_autotune: bool  # torch.compile searches too
    folder: Path  # its own, to write in


def as_tensors(result):
    """Every tensor in what a call returned: of PyTorch, NumPy, or any library with DLPack."""
    if isinstance(result, Mapping):
        return [tensor for part in result.values() for tensor in as_tensors(part)]
    if isinstance(result, (tuple, list)):
        return [tensor for part in result for tensor in as_tensors(part)]
    if isinstance(result, torch.Tensor):
        return [result]
    if hasattr(result, "__dlpack__"):
        return [torch.from_dlpack(result)]
    if hasattr(result, "__getitem__") and not isinstance(result, str):
        return as_tensors(list(result))  # TVM's arrays of tensors
    return []


@dataclass(frozen=True)
class Prepared:
    """A model ready to be called.

    bind(inputs) turns tensors into what the library takes, once, and returns the function of no
    arguments that is timed. read(result) gives the tensors in what that returned.
    """

    bind: Callable
    read: Callable = as_tensors
    settings: str = ""
    mode: Callable[[], AbstractContextManager] = torch.no_grad  # around the calls
    same_draws: bool = True  # whether `torch.manual_seed` gives it eager's random numbers
    details: dict = field(default_factory=dict)  # numbers of this competitor only, for the JSON
    prepare_s: float | None = None  # if `prepare` also tried what it did not keep


def load(name):
    """The competitor of that name; any other name is a module of the user's to import."""
    if name in NAMES:
        return importlib.import_module(f"{__name__}.{name}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    return importlib.import_module(name)


def missing(competitor):
    """The modules it needs that are not installed."""
    return [name for name in competitor.REQUIRES if importlib.util.find_spec(name) is None]


def is_available(competitor):
    return not missing(competitor)
