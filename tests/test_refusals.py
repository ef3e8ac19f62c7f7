"""What a replay could not follow is refused, and the message names the op, the line, the module."""

import copy
import ctypes
import inspect
import threading

import numpy
import pytest
import torch
from torch import nn

import nimble


class Wrapped(torch.Tensor):
    """A tensor subclass that sees every op."""

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def branch_on_value(x):
    return x * 2 if x.sum() > 0 else x


def loop_on_value(x):
    while x.norm() > 1e9:
        x = x / 2
    return x


def pack(x):
    lengths = torch.tensor([2, 1])
    return nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True).data


def assign_by_mask(x):
    y = x.clone()
    y[x > 0] = x[x > 0] * 2
    return y


def functional_grad(x):
    return torch.func.grad(lambda t: (t * t).sum())(x)


# What is written in the model: (the op as the message names it, the call on a 2×3 float tensor).
averaging = nn.BatchNorm1d(3, momentum=None)

CASES = {
    "item": ("_local_scalar_dense|item", lambda x: x * x.sum().item()),
    "float": ("_local_scalar_dense|item", lambda x: x * float(x[0, 0])),
    "int": ("_local_scalar_dense|item", lambda x: x[: int(x[0, 0].abs() * 0) + 1]),
    "index": ("_local_scalar_dense|item", lambda x: x[: (x[0, 0] * 0 + 1).long()]),
    "bool": ("_local_scalar_dense|is_nonzero|item", branch_on_value),
    "while": ("_local_scalar_dense|is_nonzero|item", loop_on_value),
    "format": ("_local_scalar_dense|item|tolist", lambda x: (f"{x.sum():.1f}", x)[1]),
    "nonzero": ("nonzero", lambda x: x.nonzero()),
    "where": ("nonzero", lambda x: torch.where(x > 0)),
    "argwhere": ("nonzero|argwhere", lambda x: torch.argwhere(x > 0)),
    "mask": ("index", lambda x: x[x > 0]),
    "masked_select": ("masked_select", lambda x: x.masked_select(x > 0)),
    "unique": ("unique", lambda x: x.round().unique()),
    "unique_consecutive": ("unique", lambda x: x.unique_consecutive()),
    "repeat_interleave": (
        "repeat_interleave", lambda x: x.repeat_interleave(x[:, 0].long() + 1, 0),
    ),
    "bincount": ("bincount", lambda x: x.long().abs().flatten().bincount()),
    "tolist": ("tolist", lambda x: torch.tensor(x.tolist()) * 2),
    "numpy": ("numpy", lambda x: torch.from_numpy(x.numpy() * 2)),
    "asarray": ("__array__|numpy", lambda x: torch.from_numpy(numpy.asarray(x) * 2)),
    "numpy function": ("__array__|numpy", lambda x: torch.as_tensor(numpy.sin(x))),
    "dlpack": ("dlpack", lambda x: torch.from_dlpack(x * 2) + 1),
    "equal": ("equal", lambda x: x if torch.equal(x, x + 1) else x * 2),
    "allclose": ("allclose|_local_scalar_dense", lambda x: x if torch.allclose(x, x + 1) else x * 2),
    "in": ("_local_scalar_dense|is_nonzero", lambda x: x * 2 if 0.5 in x else x),
    "pack_padded_sequence": ("pack_padded", pack),
    "assign mask": ("index", assign_by_mask),
    "vmap": ("aten::", lambda x: torch.vmap(lambda row: row * row.sum())(x)),
    "func.grad": ("aten::", functional_grad),
    "subclass": ("aten::", lambda x: x * torch.ones(3).as_subclass(Wrapped)),
    "sparse": ("sparse", lambda x: x.to_sparse().to_dense()),
    "sparse csr": ("sparse", lambda x: torch.mm(x.to_sparse_csr(), x.t())),
    "quantized": ("quantize", lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize()),
    "meta": ("_to_copy|to", lambda x: (x.to("meta"), x)[1]),
    "momentum none": ("_local_scalar_dense|item", lambda x: averaging(x)),
}  # fmt: skip


class Outer(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.blocks = nn.Sequential(nn.Identity(), Inner(function))

    def forward(self, x):
        return self.blocks(x)


class Inner(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def lines_of(function):
    lines, first = inspect.getsourcelines(function)
    return range(first, first + len(lines))


@pytest.mark.parametrize("case", CASES)
def test_refused_with_the_op_the_line_and_the_module(case):
    names, function = CASES[case]
    model, x = Outer(function), torch.rand(2, 3) + 0.1
    with pytest.raises(nimble.Refused) as refused:
        nimble.Nimble(model).prepare(x)
    message = str(refused.value)
    assert any(name in message for name in names.split("|")), message
    assert any(f"{__file__}:{line}" in message for line in lines_of(function)), message
    assert "blocks.1" in message or "Inner" in message, message
    # Nothing is left behind: the next recording on this thread works.
    assert torch.equal(nimble.Nimble(nn.ReLU()).prepare(x)(x), x)


def test_the_line_is_found_in_folders_called_like_the_libraries():
    for file in ("/home/me/nimble/model.py", "/home/me/torch/model.py"):
        scope = {}
        exec(compile("def function(x):\n    return x * x.sum().item()\n", file, "exec"), scope)
        with pytest.raises(nimble.Refused, match=f"{file}:2"):
            nimble.record(scope["function"], torch.ones(2))


@pytest.mark.parametrize("streams", [1, 2])
def test_masks_that_keep_the_shape_are_not_refused(streams):
    def function(x):
        y = x.clone()
        y[x > 0] = 7.0
        return torch.where(x > 0, x, -x), x.masked_fill(x > 0, 1.0), y

    x = torch.randn(4, 3).abs()
    step = nimble.record(function, x, streams=streams)
    x = torch.randn(4, 3).abs() - 0.5
    torch.testing.assert_close(step(x), function(x), rtol=0, atol=0)


# ---- work the recorder cannot see must not be frozen ----


def by_hand(x):
    y = torch.empty(3)
    ctypes.memmove(y.data_ptr(), x.contiguous().data_ptr(), 12)
    return y * 2


def in_a_thread(x):
    result = []
    thread = threading.Thread(target=lambda: result.append(x * 2))
    thread.start()
    thread.join()
    return result[0] + 1


def scripted_fork(x):
    future = torch.jit.fork(torch.mul, x, 2)
    return torch.jit.wait(future) + 1


def deep_copy(x):
    return copy.deepcopy(x) * 2


def storage_access(x):
    return torch.tensor(list(x.untyped_storage())[:4], dtype=torch.uint8)


def seeded_inside(x):
    torch.manual_seed(0)
    return torch.rand(3) + x[:3]


inner_engine = nimble.Nimble(nn.Tanh()).prepare(torch.zeros(3))
inner_compiled = nimble.compile(nn.Tanh())


@pytest.mark.parametrize(
    "function",
    [
        by_hand, in_a_thread, scripted_fork, deep_copy, storage_access, seeded_inside,
        lambda x: inner_engine(x) + 1, lambda x: inner_compiled(x) + 1,
    ],
    ids=["by hand", "thread", "fork", "deepcopy", "storage", "seed", "engine", "compiled"],
)  # fmt: skip
def test_unseen_work_is_replayed_or_refused_but_never_frozen(function):
    try:
        step = nimble.record(function, torch.zeros(3))
        inner_compiled(torch.zeros(3))
        got = [step(torch.full((3,), float(value))) for value in (1, 2)]
    except nimble.NimbleError:
        return
    torch.testing.assert_close(got, [function(torch.full((3,), float(v))) for v in (1, 2)])


def test_a_part_that_is_compiled_already_is_refused_even_if_its_result_is_returned_directly():
    compiled = torch.compile(lambda x: x.sin() * 2 + 1)
    with torch.no_grad():
        compiled(torch.ones(64))
        for function in (compiled, lambda x: compiled(x) + 1):
            with pytest.raises(nimble.Refused, match="other values"):
                nimble.record(function, torch.randn(64))
