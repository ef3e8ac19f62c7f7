"""A replay computes what eager PyTorch computes, on new values."""

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import nimble
from comparison import exact, kernels  # noqa: F401


class Branches(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 8, k, padding=k // 2), nn.BatchNorm2d(8), nn.ReLU())
            for k in (1, 3, 5, 1)[:width]
        )

    def forward(self, x):
        x = self.stem(x)
        return torch.cat([branch(x) for branch in self.branches], 1).mean((2, 3))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3), nn.ReLU(inplace=True),
            nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3),
        )  # fmt: skip

    def forward(self, x):
        y = self.body(x)
        y += x
        return F.relu_(y)


class Attention(nn.Module):
    def __init__(self, need_weights):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.need_weights = need_weights

    def forward(self, x):
        return self.attention(x, x, x, need_weights=self.need_weights)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def spectral(x):
    z = torch.fft.rfft(x)
    z = z * torch.polar(torch.ones_like(z.real), z.imag) + z.conj()
    return torch.fft.irfft(z), torch.view_as_real(z), z.abs(), z.mH


def attention_by_hand(x):
    q, k, v = x.view(2, 5, 2, 8).transpose(1, 2).split([3, 3, 2], -1)
    causal = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return causal, torch.softmax(q @ k.mT, -1) @ v


def image(*size):
    return lambda: torch.randn(2, 3, *(size or (8, 8)))


def tokens():
    return torch.randint(10, (2, 7))


def sequence(dtype=torch.float32):
    return lambda: torch.randn(2, 5, 16).to(dtype)


MODELS = {
    "conv_bn_relu": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), image(),
    ),
    "inplace_relu": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True)), image()),
    "branches": (Branches, image()),
    "residual": (Residual, image()),
    "groupnorm": (lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.GroupNorm(2, 8), nn.GELU()), image()),
    "pooling": (
        lambda: nn.Sequential(nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2), nn.Flatten()), image(),
    ),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), image()),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), image()),
    "embedding": (lambda: nn.Sequential(nn.Embedding(10, 6), nn.LayerNorm(6)), tokens),
    "lstm": (lambda: nn.LSTM(16, 8, num_layers=2, batch_first=True, bidirectional=True), sequence()),
    "gru": (lambda: nn.GRU(16, 8, batch_first=True), sequence()),
    "attention": (lambda: Attention(False), sequence()),
    "attention_weights": (lambda: Attention(True), sequence()),
    "attention_by_hand": (lambda: Function(attention_by_hand), sequence()),
    "encoder_layer": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), sequence()),
    "encoder_layer_norm_first": (
        lambda: nn.TransformerEncoderLayer(16, 4, 32, norm_first=True, activation="gelu"),
        sequence(),
    ),
    "fft": (lambda: Function(spectral), sequence()),
    "bfloat16_linear": (
        lambda: nn.Sequential(nn.Linear(16, 8), nn.GELU(), nn.Linear(8, 4)).bfloat16(),
        sequence(torch.bfloat16),
    ),
    "half_linear": (
        lambda: nn.Sequential(nn.Linear(16, 8), nn.Tanh()).half(), sequence(torch.half),
    ),
    "bfloat16_conv": (
        lambda: nn.Conv2d(3, 4, 3).bfloat16(), lambda: torch.randn(2, 3, 8, 8).bfloat16(),
    ),
    "double": (lambda: nn.Linear(16, 8).double(), sequence(torch.float64)),
    "integers": (lambda: Function(lambda x: (x // 3 % 2, x.cumsum(1), x.bool())), tokens),
    "sort_and_gather": (
        lambda: Function(lambda x: (x.sort(-1), x.topk(2), x.gather(-1, x.argsort(-1)))), sequence(),
    ),
    "scripted": (lambda: torch.jit.script(nn.Sequential(nn.Linear(16, 8), nn.ReLU())), sequence()),
    "traced": (
        lambda: torch.jit.trace(nn.Linear(16, 8), torch.randn(2, 5, 16)), sequence(),
    ),
}  # fmt: skip


def build(name):
    make_model, make_input = MODELS[name]
    torch.manual_seed(0)
    model = make_model().eval()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
    return model, make_input


@pytest.mark.parametrize("name", MODELS)
def test_one_stream_equals_eager_bit_for_bit(name):
    model, make_input = build(name)
    engine = nimble.Nimble(model, streams=1, kernels="torch").prepare(make_input())
    for _ in range(3):
        x = make_input()
        with torch.no_grad():
            exact(engine(x), model(x))
    assert engine.schedule.verify() == []


@pytest.mark.parametrize("streams", [2, 3, 4, "auto"])
@pytest.mark.parametrize("name", ["branches", "attention_by_hand", "lstm", "encoder_layer", "fft"])
def test_many_streams_equal_eager(name, streams):
    model, make_input = build(name)
    engine = nimble.Nimble(model, streams=streams, threads=2).prepare(make_input())
    assert engine.schedule.verify() == []
    assert engine.schedule.streams <= (2 if streams == "auto" else streams)
    for _ in range(20):
        x = make_input()
        with torch.no_grad():
            torch.testing.assert_close(engine(x), model(x))


def test_branches_use_the_streams_that_were_asked_for():
    model, make_input = build("branches")
    schedule = nimble.Nimble(model, streams=3, kernels="torch").prepare(make_input()).schedule
    assert schedule.streams == 3 and schedule.waits > 0
    assert schedule.degree >= 4


def test_record_and_compile_equal_eager():
    w = torch.randn(4, 4)
    function = lambda x, y: (x @ w + y).relu()
    recorded = nimble.record(function, torch.randn(3, 4), torch.randn(4))
    compiled = nimble.compile(function)
    for _ in range(3):
        x, y = torch.randn(3, 4), torch.randn(4)
        exact(recorded(x, y), function(x, y))
        exact(compiled(x, y), function(x, y))
        w.add_(1)  # an external tensor is read at its own address


def test_dropout_draws_what_eager_draws():
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.2)).train()
    engine = nimble.Nimble(model).prepare(torch.randn(4, 8))
    x = torch.randn(4, 8)

    def five(call):
        torch.manual_seed(7)
        with torch.no_grad():
            return [value for _ in range(5) for value in (call(x), torch.rand(3))]

    replayed = five(engine)
    exact(replayed, five(model))
    assert not torch.equal(replayed[0], replayed[2])


@pytest.mark.parametrize("streams", [1, 3])
def test_random_ops_of_all_kinds_follow_the_seed(streams):
    generator = torch.Generator()

    def function(x):
        noise = torch.empty_like(x).uniform_(generator=generator)
        dropped = F.dropout(x, 0.3) + F.alpha_dropout(x, 0.3)
        picked = torch.multinomial(x.abs() + 0.1, 2)
        drawn = torch.bernoulli(x.sigmoid(), generator=generator)
        return (
            torch.rand(2, 3), torch.randn_like(x), noise, dropped, picked, drawn,
            torch.randperm(9), torch.randint(5, (4,)), torch.normal(x, 1.0), F.rrelu(x, training=True),
        )  # fmt: skip

    step = nimble.record(function, torch.randn(4, 6), streams=streams)
    x = torch.randn(4, 6)

    def three(call):
        torch.manual_seed(3)
        generator.manual_seed(4)
        return [call(x) for _ in range(3)]

    exact(three(step), three(function))


@pytest.mark.parametrize("streams", [1, 3])
def test_batch_norm_in_train_mode_updates_statistics_as_eager(streams, one_thread):
    def make():
        torch.manual_seed(1)
        return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).train()

    ours, theirs = make(), make()
    engine = nimble.Nimble(ours, streams=streams, threads=1).prepare(torch.randn(2, 3, 4, 4))
    for _ in range(5):
        x = torch.randn(2, 3, 4, 4)
        with torch.no_grad():
            exact(engine(x), theirs(x))
        exact(dict(ours.state_dict()), dict(theirs.state_dict()))


def test_embedding_max_norm_changes_the_weight_as_eager():
    def make():
        torch.manual_seed(1)
        return nn.Embedding(10, 4, max_norm=0.5)

    ours, theirs = make(), make()
    engine = nimble.Nimble(ours).prepare(tokens())
    exact(ours.weight, theirs.weight)
    for _ in range(3):
        x = tokens()
        with torch.no_grad():
            exact(engine(x), theirs(x))
        exact(ours.weight, theirs.weight)


# ---- what the schedule tells ----


@pytest.mark.parametrize("streams", [1, 3])
def test_timeline_is_json_with_a_track_per_stream_and_module_names(streams, tmp_path):
    model, make_input = build("branches")
    engine = nimble.Nimble(model, streams=streams, kernels="torch").prepare(make_input())
    engine.schedule.save_timeline(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    tasks = [event for event in events if event["ph"] == "X"]
    assert len(tasks) == engine.schedule.tasks
    assert len({event["tid"] for event in tasks}) == streams
    assert "branches.2.0" in (tmp_path / "t.json").read_text()


def test_timeline_leaves_state_as_it_was(tmp_path):
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout()).train()
    engine = nimble.Nimble(model).prepare(torch.randn(4, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    engine.schedule.save_timeline(tmp_path / "t.json")
    exact(dict(model.state_dict()), before)
    assert torch.equal(torch.get_rng_state(), generator)


def test_graph_and_explanation_mention_every_task(tmp_path):
    model, make_input = build("branches")
    engine = nimble.Nimble(model, streams=2, kernels="torch").prepare(make_input())
    engine.schedule.save_graph(tmp_path / "g.dot")
    engine.schedule.save_graph(tmp_path / "g.txt")
    dot, text = ((tmp_path / name).read_text() for name in ("g.dot", "g.txt"))
    assert dot.startswith("digraph") and dot.count("->") > 0
    assert text.count("convolution") == dot.count("convolution") == 5
    lines = [line for line in engine.explain().splitlines() if "aten::" in line]
    assert len(lines) == engine.schedule.tasks
    assert any("[branches.3.1]" in line for line in lines)
    assert "degree=" in repr(engine.schedule)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "loss", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"]
)
def test_losses_replay_without_warnings(loss, reduction, capfd):
    function = lambda x, y: getattr(nn.functional, loss)(x, y, reduction=reduction)
    step = nimble.record(function, torch.randn(8, 4), torch.randn(8, 4))
    x, y = torch.randn(8, 4), torch.randn(8, 4)
    exact(step(x, y), function(x, y))
    assert capfd.readouterr().err == ""
