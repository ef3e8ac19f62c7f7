"""Written inputs, and settings of the framework around prepare and around the call."""

import contextlib

import pytest
import torch
from torch import nn

import nimble
from comparison import exact, kernels  # noqa: F401


# ---- inputs that the program writes ----


def write_whole(x, y):
    x.add_(1)
    return x * y


def write_slice(x, y):
    x[1:, ::2] *= 3
    return y + 1


def write_view(x, y):
    x.view(-1)[2:5].fill_(7)
    x.t()[0].zero_()
    return x, x[1]


def write_both(x, y):
    y.copy_(x)
    x.mul_(2)
    y[0] += x[0]
    return x + y


def write_out(x, y):
    torch.mul(y, 2, out=x)


MATRICES = {
    "contiguous": lambda: torch.randn(4, 4),
    "transposed": lambda: torch.randn(4, 4).t(),
    "sliced": lambda: torch.randn(9, 9)[1:8:2, 2:6],
    "offset": lambda: torch.randn(20)[3:19].view(4, 4),
}


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("called", MATRICES)
@pytest.mark.parametrize("prepared", ["contiguous", "sliced"])
@pytest.mark.parametrize("function", [write_whole, write_slice, write_view, write_both, write_out])
def test_an_input_written_in_place_is_the_callers_tensor(function, prepared, called, streams):
    if function is write_view and prepared != "contiguous":
        pytest.skip("view(-1) needs a contiguous example")
    step = nimble.record(function, MATRICES[prepared](), MATRICES[prepared](), streams=streams)
    x, y = MATRICES[called](), MATRICES[called]()
    theirs = [t.clone(memory_format=torch.contiguous_format) for t in (x, y)]
    if function is write_view and called in ("transposed", "sliced"):
        with pytest.raises(nimble.NimbleError, match="strides"):
            step(x, y)
        return
    version = x._version
    got, want = step(x, y), function(*theirs)
    exact(got, want)
    exact((x, y), tuple(theirs))
    assert x._version > version


@pytest.mark.parametrize(
    "share",
    [lambda x: (x, x), lambda x: (x[:4], x[2:6]), lambda x: (x[2:6], x[:4]), lambda x: (x[:4], x[:4].t())],
    ids=["same", "later", "earlier", "transposed"],
)
def test_a_written_input_that_overlaps_another_is_an_error(share):
    step = nimble.record(write_whole, torch.randn(4, 4), torch.randn(4, 4))
    base = torch.randn(6, 4)
    args = share(base if share(base)[0].shape == (4, 4) else torch.randn(4, 4))
    with pytest.raises(nimble.NimbleError, match="share memory"):
        step(*args)
    with pytest.raises(nimble.NimbleError, match="share memory"):
        nimble.record(write_whole, *args)
    apart = torch.randn(8, 4)
    exact(step(apart[:4], apart[4:]), (apart[:4] * apart[4:]))


def test_a_written_expanded_input_is_an_error_as_in_eager():
    step = nimble.record(lambda x: x.add_(1), torch.randn(3, 4))
    with pytest.raises(RuntimeError, match="single memory location"):
        step(torch.randn(4).expand(3, 4))
    with pytest.raises(RuntimeError, match="single memory location"):
        nimble.record(lambda x: x.add_(1), torch.randn(4).expand(3, 4))


def test_a_written_tensor_of_the_model_passed_as_input_is_an_error():
    model = nn.BatchNorm1d(3).train()
    step = nimble.record(lambda x: model(x.expand(2, 3)), torch.randn(1, 3))
    with pytest.raises(nimble.NimbleError, match="share"):
        step(model.running_mean.view(1, 3))


def test_backward_after_a_replay_that_wrote_notices_the_write():
    w = torch.ones(3, requires_grad=True)
    saved = torch.ones(3)
    loss = (w * saved).sum()
    nimble.record(lambda x: x.mul_(2), torch.ones(3))(saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# ---- autograd ----


def test_inputs_that_require_grad_need_no_grad():
    engine = nimble.Nimble(nn.Linear(3, 3)).prepare(torch.randn(2, 3, requires_grad=True))
    x = torch.randn(2, 3, requires_grad=True)
    with pytest.raises(nimble.NimbleError, match="no_grad"):
        engine(x)
    with torch.no_grad():
        exact(engine(x), engine.model(x))
    assert not engine(x.detach()).requires_grad


MODES = {
    "plain": contextlib.nullcontext, "no_grad": torch.no_grad, "inference": torch.inference_mode,
}  # fmt: skip


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("called", MODES)
@pytest.mark.parametrize("prepared", MODES)
@pytest.mark.parametrize("made", ["plain", "inference"])
def test_inference_mode_around_prepare_or_call(made, prepared, called, streams):
    updates = made == "plain"  # eager does not let inference tensors be updated either
    with MODES[made]():
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True))
        model.train(updates)
    with MODES[prepared]():
        engine = nimble.Nimble(model, streams=streams).prepare(torch.randn(3, 4))
    with MODES[called]():
        x = torch.randn(3, 4)
        got = engine(x)
    other = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()).train(updates)
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(got, other(x))
    exact(model[1].num_batches_tracked, torch.tensor(int(updates)))


# ---- settings ----


def test_autocast_around_prepare_is_needed_around_the_call():
    model = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1), nn.Linear(4, 4))
    x = torch.randn(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        engine = nimble.Nimble(model).prepare(x)
        with torch.no_grad():
            for _ in range(2):
                exact(engine(x), model(x))
                model[0].weight.data.mul_(2)  # the cast of it must not be a cached one
                torch.clear_autocast_cache()
    with pytest.raises(nimble.NimbleError, match="autocast.*autocast"):
        engine(x)
    with torch.autocast("cpu", torch.half), pytest.raises(nimble.NimbleError, match="BFloat16"):
        engine(x)
    plain = nimble.Nimble(model).prepare(x)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(nimble.NimbleError, match="autocast"):
        plain(x)
    with torch.no_grad():
        exact(plain(x), model(x))


def test_another_default_dtype_is_an_error():
    x = torch.ones(3)
    step = nimble.record(lambda x: torch.ones(3) + x, x)
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(nimble.NimbleError, match="default dtype"):
            step(x)
    finally:
        torch.set_default_dtype(torch.float32)
    exact(step(torch.ones(3)), torch.full((3,), 2.0))


def test_the_default_device_is_not_mistaken_for_the_programs():
    with torch.device("meta"), pytest.raises(nimble.NimbleError):
        nimble.record(lambda x: x + torch.ones(3), torch.ones(3, device="cpu"))
    with torch.device("cpu"):
        step = nimble.record(lambda x: x + torch.ones(3), torch.ones(3))
    exact(step(torch.ones(3)), torch.full((3,), 2.0))
