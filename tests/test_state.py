"""The model's state: left alone by prepare, followed or guarded by replays."""


import pytest
import torch
from torch import nn
from torch.nn.modules import module as nn_module

import nimble
from comparison import exact, kernels  # noqa: F401


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.w = nn.Parameter(torch.randn(4, 4))
        self.register_buffer("scale", torch.rand(4))
        self.plain = torch.rand(4)
        self.listed = [torch.rand(4)]
        self.factor = 1.5

    def forward(self, x):
        x = self.norm(self.linear(x)) @ self.w
        return (x * self.scale + self.plain) * self.factor + self.listed[0]


def small(seed=0):
    torch.manual_seed(seed)
    return Small().eval()


def state_of(model):
    state = {name: value.clone() for name, value in model.state_dict().items()}
    return {**state, "plain": model.plain.clone(), "listed": model.listed[0].clone()}


# ---- changes between calls ----


def optimizer_step(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()


def fused_step_on_one_column(model):
    """Changes no version, and no number that is at a corner of a weight."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    model.w.grad[1, 2] = 1.0
    versions = [p._version for p in model.parameters()]
    optimizer.step()
    assert versions == [p._version for p in model.parameters()], "PyTorch counts it now"


def inside(model, change):
    with torch.no_grad():
        change(model)


SEEN = {
    "optimizer": optimizer_step,
    "fused optimizer": fused_step_on_one_column,
    "load_state_dict": lambda m: m.load_state_dict(small(5).state_dict()),
    "data.copy_": lambda m: m.w.data.copy_(torch.rand(4, 4)),
    "slice": lambda m: inside(m, lambda m: m.w[1].zero_()),
    "buffer": lambda m: m.scale.fill_(3),
    "statistics": lambda m: m.norm.running_mean.fill_(2),
    "plain": lambda m: m.plain.fill_(3),
    "listed": lambda m: m.listed[0].fill_(3),
    "shared": lambda m: (m.share_memory(), m.w.data.fill_(2)),
    "eval again": lambda m: m.eval(),
    "frozen": lambda m: m.requires_grad_(False),
    "zero_grad": lambda m: m.zero_grad(),
}

REPLACED = {
    "data": lambda m: setattr(m.w, "data", torch.rand(4, 4)),
    "data transposed": lambda m: setattr(m.w, "data", m.w.data.t()),
    "data of buffer": lambda m: setattr(m.scale, "data", torch.rand(4)),
    "data of plain": lambda m: setattr(m.plain, "data", torch.rand(4)),
    "parameter": lambda m: setattr(m, "w", nn.Parameter(torch.rand(4, 4))),
    "assign": lambda m: m.load_state_dict(small(5).state_dict(), assign=True),
    "submodule": lambda m: setattr(m, "linear", nn.Linear(4, 4)),
    "submodule parameter": lambda m: setattr(m.linear, "bias", nn.Parameter(torch.rand(4))),
    "no bias": lambda m: setattr(m.linear, "bias", None),
    "buffer": lambda m: setattr(m, "scale", torch.rand(4)),
    "plain": lambda m: setattr(m, "plain", torch.rand(4)),
    "listed": lambda m: m.listed.__setitem__(0, torch.rand(4)),
    "number": lambda m: setattr(m, "factor", 2.5),
    "train": lambda m: m.train(),
    "train part": lambda m: m.norm.train(),
    "forward": lambda m: setattr(m, "forward", lambda x: x),
    "hook": lambda m: m.linear.register_forward_hook(lambda m, i, o: o * 2),
    "pre-hook": lambda m: m.linear.register_forward_pre_hook(lambda m, i: (i[0] * 2,)),
    "eps": lambda m: setattr(m.norm, "eps", 0.5),
    "parametrized": lambda m: torch.nn.utils.parametrize.register_parametrization(
        m.linear, "weight", nn.Tanh()),
}  # fmt: skip


def right_or_refused(engine, model, x):
    try:
        got = engine(x)
    except nimble.NimbleError:
        return
    torch.testing.assert_close(got, model(x))


@pytest.mark.parametrize("change", SEEN)
def test_changes_in_place_are_seen(change):
    model, x = small(), torch.randn(3, 4)
    engine, compiled = nimble.Nimble(model).prepare(x), nimble.compile(model)
    compiled(x)
    SEEN[change](model)
    with torch.no_grad():
        exact(engine(x), model(x))
        exact(compiled(x), model(x))


@pytest.mark.parametrize("change", REPLACED)
def test_replaced_parts_are_noticed_by_a_prepared_model(change):
    model, x = small(), torch.randn(3, 4)
    engine = nimble.Nimble(model).prepare(x)
    REPLACED[change](model)
    with torch.no_grad():
        right_or_refused(engine, model, x)
        engine.prepare(x)
        torch.testing.assert_close(engine(x), model(x))


@pytest.mark.parametrize("change", REPLACED)
def test_replaced_parts_are_recorded_anew_by_compile(change):
    model, x = small(), torch.randn(3, 4)
    compiled = nimble.compile(model)
    compiled(x)
    REPLACED[change](model)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))


def test_an_appended_layer_is_noticed():
    model, x = nn.Sequential(nn.Linear(4, 4)), torch.randn(3, 4)
    engine, compiled = nimble.Nimble(model).prepare(x), nimble.compile(model)
    compiled(x)
    model.append(nn.ReLU())
    with torch.no_grad():
        exact(compiled(x), model(x))
        right_or_refused(engine, model, x)


def test_a_model_converted_to_another_dtype_is_noticed():
    model, x = nn.Linear(4, 4), torch.randn(3, 4)
    engine = nimble.Nimble(model).prepare(x)
    model.double()
    with pytest.raises(nimble.NimbleError, match="weight"):
        engine(x)


def test_other_memory_of_a_captured_tensor_is_noticed():
    w = torch.rand(4)
    function = lambda x: x * w
    step, compiled = nimble.record(function, torch.ones(4)), nimble.compile(function)
    compiled(torch.ones(4))
    w.data = torch.rand(4)
    exact(compiled(torch.ones(4)), function(torch.ones(4)))
    right_or_refused(step, function, torch.ones(4))


@pytest.mark.parametrize("wrap", [nn.utils.weight_norm, nn.utils.spectral_norm,
                                  nn.utils.parametrizations.weight_norm])  # fmt: skip
def test_weights_computed_in_a_hook_are_replayed_or_refused_by_prepare(wrap):
    model, x = wrap(nn.Linear(4, 4)).eval(), torch.randn(3, 4)
    try:
        engine = nimble.Nimble(model).prepare(x)
    except nimble.Refused:
        return
    with torch.no_grad():
        for _ in range(2):
            exact(engine(x), model(x))


# ---- prepare leaves everything as it was ----


def everything(model, generator):
    return {
        "state": state_of(model),
        "versions of memory": [t.data_ptr() for t in model.state_dict().values()],
        "flags": [part.training for part in model.modules()],
        "gradients": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "requires": [p.requires_grad for p in model.parameters()],
        "random": (torch.get_rng_state(), generator.get_state()),
        "hooks": [len(v) for k, v in vars(nn_module).items() if k.startswith("_global_") and
                  hasattr(v, "__len__")],
        "patches": sorted(vars(torch.Tensor)),
        "readers": [id(getattr(torch.Tensor, n)) for n in ("__array__",)],
        "grad mode": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "keys": sorted(vars(model)),
    }  # fmt: skip


def unharmed(model, generator, before):
    for (name, was), now in zip(before.items(), everything(model, generator).values()):
        if name in ("state", "random", "gradients"):
            exact(now, was, msg=lambda text: f"{name}: {text}")
        else:
            assert now == was, name


class Stateful(Small):
    def __init__(self, ending, generator):
        super().__init__()
        self.ending = ending
        self.generator = generator

    def forward(self, x):
        self.scale.mul_(0.5)
        y = super().forward(x) + torch.rand(4)
        self.ending(self, y)
        self.plain.add_(1)
        self.norm(x)
        torch.rand(3, generator=self.generator)
        self.w.data[0] = 5
        return nn.functional.dropout(y)


def raise_error(model, y):
    raise KeyError("in the middle")


def write_gradients(model, y):
    with torch.enable_grad():
        (y.detach() * model.w.sum()).sum().backward()


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize(
    "ending, error",
    [
        (lambda m, y: None, None),
        (raise_error, KeyError),
        (lambda m, y: y.sum().item(), nimble.Refused),
        (lambda m, y: y.tolist(), nimble.Refused),
        (lambda m, y: y @ torch.ones(9, 9), RuntimeError),
        (write_gradients, nimble.Refused),
    ],
    ids=["good", "raises", "item", "tolist", "mismatch", "backward"],
)
@pytest.mark.parametrize("with_grad", [False, True])
def test_prepare_leaves_everything_as_it_was(ending, error, streams, with_grad):
    generator = torch.Generator().manual_seed(3)
    model = Stateful(ending, generator).train()
    model.linear.eval()
    if with_grad:
        for p in model.parameters():
            p.grad = torch.randn_like(p)
    x = torch.randn(3, 4)
    given, before = x.clone(), everything(model, generator)
    try:
        nimble.Nimble(model, streams=streams).prepare(x)
        assert error is None
    except Exception as raised:
        assert error and isinstance(raised, error), raised
    unharmed(model, generator, before)
    exact(x, given)


def test_prepare_leaves_a_written_input_and_external_tensors_as_they_were():
    seen = torch.zeros(3)
    function = lambda x: (x.add_(1), seen.add_(x))
    x = torch.zeros(3)
    for streams in (1, 2):
        nimble.record(function, x, streams=streams)
    exact(x, torch.zeros(3))
    exact(seen, torch.zeros(3))


def test_swapping_a_tensor_of_a_prepared_model_is_noticed_or_an_error():
    model, x = small(), torch.randn(3, 4)
    engine = nimble.Nimble(model).prepare(x)
    try:
        torch.utils.swap_tensors(model.w, nn.Parameter(torch.rand(4, 4)))
    except RuntimeError:  # PyTorch swaps only what nobody else refers to
        return
    with torch.no_grad():
        right_or_refused(engine, model, x)
