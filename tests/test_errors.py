"""What does not fit is an error that says so, and the engine works on after it."""

import dataclasses
import re
import types

import pytest
import torch
from torch import nn

import nimble
from comparison import exact, kernels  # noqa: F401


@torch.library.custom_op("nimble_test::checked_scale", mutates_args=())
def checked_scale(x: torch.Tensor, bound: float) -> torch.Tensor:
    if x.abs().max() > bound:
        raise ValueError(f"larger than {bound}")
    return x * 2


@torch.library.custom_op("nimble_test::add_one_", mutates_args=("x",))
def add_one_(x: torch.Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("nimble_test::split_sign", mutates_args=())
def split_sign(x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return x.relu(), [(-x).relu(), x.sign()]


# ---- arguments that are not what was prepared ----


def scaled(x, y=None, *, factor=2.0, names=("a",)):
    return x * factor + (0 if y is None else y)


WRONG_ARGUMENTS = {
    "shape": (lambda x: ((x[:1],), {}), ["[3, 4]", "[1, 4]"]),
    "rank": (lambda x: ((x[0],), {}), ["[3, 4]", "[4]"]),
    "dtype": (lambda x: ((x.double(),), {}), ["float32", "float64"]),
    "device": (lambda x: ((x.to("meta"),), {}), ["[3, 4]", "meta"]),
    "layout": (lambda x: ((x.to_sparse(),), {}), ["[3, 4]", "Sparse"]),
    "more": (lambda x: ((x, x), {}), ["1 ", "2"]),
    "fewer": (lambda x: ((), {}), ["1 ", "0"]),
    "structure": (lambda x: (([x],), {}), ["(float32[3, 4])", "([float32[3, 4]])"]),
    "keyword": (lambda x: ((x,), {"y": x}), ["(float32[3, 4])", "'y': float32[3, 4]"]),
    "as keyword": (lambda x: ((), {"x": x}), ["(float32[3, 4])", "'x': float32[3, 4]"]),
    "value": (lambda x: ((x,), {"factor": 3.0}), ["{}", "3.0"]),
    "no tensor": (lambda x: ((3.0,), {}), ["float32[3, 4]", "3.0"]),
    "none": (lambda x: ((None,), {}), ["float32[3, 4]", "None"]),
    "subclass": (lambda x: ((x.as_subclass(type("Mine", (torch.Tensor,), {})),), {}), ["Mine"]),
}


@pytest.mark.parametrize("case", WRONG_ARGUMENTS)
def test_wrong_arguments_are_named_beside_what_was_prepared(case):
    change, words = WRONG_ARGUMENTS[case]
    step = nimble.record(scaled, torch.randn(3, 4))
    x = torch.randn(3, 4)
    args, kwargs = change(x)
    with pytest.raises(nimble.NimbleError) as error:
        step(*args, **kwargs)
    message = str(error.value).replace(" ", "")
    for word in words:
        assert word.replace(" ", "") in message
    exact(step(x), scaled(x))


@pytest.mark.parametrize("value", [3.0, 2, True, None, "2", -2.0, float("nan")])
def test_another_value_of_a_constant_argument_is_an_error(value):
    step = nimble.record(scaled, torch.randn(3), factor=2.0)
    with pytest.raises(nimble.NimbleError, match=re.escape(repr(value))):
        step(torch.randn(3), factor=value)


def test_negative_zero_is_another_value_than_zero():
    fill = lambda x, value: torch.full_like(x, value)
    compiled = nimble.compile(fill)
    for value in (0.0, -0.0, 0.0):
        assert torch.equal(compiled(torch.zeros(2), value).signbit(), fill(torch.zeros(2), value).signbit())


@dataclasses.dataclass
class Config:
    factor: float = 1.0
    sizes: set = dataclasses.field(default_factory=set)


@pytest.mark.parametrize("make", [lambda: types.SimpleNamespace(factor=1.0), Config])
def test_a_changed_configuration_object_is_noticed(make):
    config = make()
    function = lambda x, config: x * config.factor
    step = nimble.record(function, torch.ones(2), config)
    config.factor = 5.0
    with pytest.raises(nimble.NimbleError):
        step(torch.ones(2), config)


def test_not_prepared_and_bad_options_are_errors():
    with pytest.raises(nimble.NimbleError, match="prepare"):
        nimble.Nimble(nn.ReLU())(torch.ones(1))
    with pytest.raises(nimble.NimbleError, match="prepare"):
        nimble.Nimble(nn.ReLU()).schedule
    for options in ({"streams": 0}, {"threads": -1}, {"kernels": "x"}, {"outputs": "old"}):  # fmt: skip
        with pytest.raises(nimble.NimbleError):
            nimble.Nimble(nn.ReLU(), **options)
    with pytest.raises(nimble.NimbleError):
        nimble.compile(nn.ReLU(), cache_size=0)


@pytest.mark.parametrize("streams", [1, 2])
def test_an_error_of_the_model_while_preparing_is_the_models_own(streams):
    class OwnError(Exception):
        pass

    def fails(x):
        raise OwnError("mine")

    with pytest.raises(OwnError, match="mine"):
        nimble.record(fails, torch.ones(1), streams=streams)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        nimble.record(lambda x: x @ x, torch.ones(2, 3), streams=streams)
    with pytest.raises(IndexError):
        nimble.record(lambda x: x.sum(5), torch.ones(2, 3))
    step = nimble.record(lambda x: x + 1, torch.ones(1))
    assert step(torch.ones(1)) == 2


# ---- compile: a plan per signature ----


def test_compile_records_once_per_signature_and_evicts_the_least_recent():
    runs = []

    def function(x, factor=1):
        shape = tuple(x.shape)
        if not runs or runs[-1] != shape:  # preparing runs it more than once
            runs.append(shape)
        return x * factor

    compiled = nimble.compile(function, cache_size=2)
    one, two, three = torch.ones(1), torch.ones(2), torch.ones(3)
    for x in (one, two, one, two, one):
        exact(compiled(x), x * 1)
    assert runs == [(1,), (2,)]
    compiled(three)  # (2,) was used least recently
    assert len(compiled.programs) == 2
    compiled(one)
    assert runs == [(1,), (2,), (3,)]
    compiled(two)
    assert runs == [(1,), (2,), (3,), (2,)]
    exact(compiled(one, 5), one * 5)
    exact(compiled(one.double()), one.double())
    exact(compiled(one, factor=torch.tensor(3.0)), one * 3)
    assert len(compiled.programs) == 2


def test_compile_follows_autocast_and_default_dtype():
    model = nn.Linear(4, 4)
    compiled = nimble.compile(model)
    x = torch.randn(2, 4)
    with torch.no_grad():
        for enabled in (False, True, False):
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                exact(compiled(x), model(x))
    zeros = nimble.compile(lambda x: torch.zeros(2))
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            assert zeros(x).dtype == dtype
        finally:
            torch.set_default_dtype(torch.float32)


# ---- kernels that throw ----


def lookup(i):
    table = torch.arange(12.0).view(4, 3)
    return nn.functional.embedding(i, table).sum(0), i * 2


def select(i):
    return torch.arange(5.0).index_select(0, i), i * 2


THROWING = {
    "embedding": (lookup, torch.tensor([1, 2]), torch.tensor([1, 9])),
    "index_select": (select, torch.tensor([1, 2]), torch.tensor([1, 9])),
    "gather": (lambda i: torch.arange(5.0).gather(0, i), torch.tensor([1]), torch.tensor([7])),
    "indexing": (lambda i: torch.arange(5.0)[i], torch.tensor([1]), torch.tensor([7])),
    "cholesky": (
        lambda x: (torch.linalg.cholesky(x), x @ x, (x + 1).inverse()),
        torch.eye(3) * 2, -torch.eye(3),
    ),
    "python op": (
        lambda x: (checked_scale(x, 10.0) + 1, x.exp(), x.sin()), torch.ones(2), torch.full((2,), 99.0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("streams", [1, 2, 3])
@pytest.mark.parametrize("name", THROWING)
def test_a_kernel_that_throws_in_a_replay_throws_as_in_eager(name, streams):
    function, good, bad = THROWING[name]
    step = nimble.record(function, good, streams=streams)
    with pytest.raises(Exception) as eager:
        function(bad)
    for _ in range(5):
        with pytest.raises(eager.type) as replayed:
            step(bad)
        assert str(replayed.value) == str(eager.value)
        exact(step(good), function(good))


# ---- operators of the user's own ----


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_python_operators_are_replayed(streams):
    def function(x):
        a = checked_scale(x, 100.0)
        b = checked_scale(x + 1, 100.0) * 2
        positive, (negative, sign) = split_sign(x - 1)
        c = x.clone()
        add_one_(c)
        return a + b + c, positive - negative, sign, c

    step = nimble.record(function, torch.randn(3, 4), streams=streams)
    assert step.schedule.verify() == []
    for _ in range(10):
        x = torch.randn(3, 4)
        exact(step(x), function(x))
    assert "nimble_test::checked_scale" in step.explain()


def test_a_python_operator_writes_the_callers_tensor():
    step = nimble.record(add_one_, torch.zeros(3))
    x = torch.zeros(3)
    step(x)
    step(x)
    exact(x, torch.full((3,), 2.0))


def test_an_autograd_function_is_replayed():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    step = nimble.record(Double.apply, torch.randn(3))
    x = torch.randn(3)
    exact(step(x), x * 2)
