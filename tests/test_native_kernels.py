"""Replays on our own kernels, against eager PyTorch."""

import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nimble


def relative_difference(actual, expected):
    """The largest difference, relative to the largest number; the same numbers must be finite."""
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    assert actual.stride() == expected.stride()
    if actual.numel() == 0:
        return 0.0
    finite = expected.isfinite()
    torch.testing.assert_close(actual[~finite], expected[~finite], equal_nan=True, rtol=0, atol=0)
    if not finite.any():
        return 0.0
    difference = (actual[finite] - expected[finite]).abs().max()
    return (difference / expected[finite].abs().max().clamp_min(1e-30)).item()


def check(model, *inputs, tolerance=1e-4, framework_tasks=0, **options):
    """Prepares on these inputs, replays on others; nothing is left to the framework."""
    model = model.eval()
    with torch.no_grad():
        engine = nimble.Nimble(model, **options).prepare(*inputs)
        assert engine.schedule.why_framework_kernels == ""
        assert engine.schedule.framework_tasks == framework_tasks, engine.explain()
        assert engine.schedule.verify() == []
        for other in (inputs, [t.flip(0).mul(1.5) if t.is_floating_point() else t for t in inputs]):
            assert relative_difference(engine(*other), model(*other)) <= tolerance
    return engine


class Residual(nn.Module):
    """A convolution, batch norm, relu, and the input added."""

    def __init__(self, channels, kernel=3, **options):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, **options)
        self.norm = nn.BatchNorm2d(channels)
        with torch.no_grad():
            self.norm.running_mean.uniform_(-1, 1)
            self.norm.running_var.uniform_(0.5, 2)
            self.norm.weight.uniform_(0.5, 2)
            self.norm.bias.uniform_(-1, 1)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x))) + x


LAYERS = {
    "1x1": nn.Conv2d(12, 20, 1),
    "3x3": nn.Conv2d(12, 20, 3, padding=1),
    "3x3 without padding": nn.Conv2d(12, 20, 3),
    "5x5, stride 2": nn.Conv2d(12, 20, 5, stride=2, padding=2),
    "dilated": nn.Conv2d(12, 20, 3, padding=2, dilation=2),
    "grouped": nn.Conv2d(12, 20, 3, padding=1, groups=4),
    "depthwise": nn.Conv2d(12, 12, 3, padding=1, groups=12),
    "depthwise 7x7, stride 2": nn.Conv2d(12, 12, 7, padding=3, stride=2, groups=12, bias=False),
    "depthwise with a multiplier": nn.Conv2d(12, 24, 3, padding=1, groups=12),
    "1x7": nn.Conv2d(12, 20, (1, 7), padding=(0, 3)),
    "7x1": nn.Conv2d(12, 20, (7, 1), padding=(3, 0)),
    "kernel as large as the padded image": nn.Conv2d(12, 20, 13, padding=2),
    "max pool": nn.MaxPool2d(3, 2, 1),
    "max pool, ceil mode": nn.MaxPool2d(3, 2, ceil_mode=True),
    "average pool": nn.AvgPool2d(3, 1, 1, count_include_pad=False),
    "average pool, ceil mode": nn.AvgPool2d(2, 2, ceil_mode=True),
    "adaptive pool": nn.AdaptiveAvgPool2d((3, 2)),
    "global pool": nn.AdaptiveAvgPool2d(1),
    "batch norm": nn.BatchNorm2d(12),
    "group norm": nn.GroupNorm(3, 12),
    "nearest": nn.Upsample(scale_factor=2),
    "bilinear": nn.Upsample(scale_factor=2, mode="bilinear"),
    "bilinear, corners aligned": nn.Upsample(size=(5, 17), mode="bilinear", align_corners=True),
    "softmax over channels": nn.Softmax(1),
    "pad": nn.ZeroPad2d((1, 2, 0, 3)),
    "residual": Residual(12),
    "depthwise residual": Residual(12, 5, groups=12),
}


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_what_eager_gives(name, layout):
    torch.manual_seed(0)
    formats = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
    x = torch.randn(2, 12, 9, 11).to(memory_format=formats[layout])
    check(LAYERS[name], x, tolerance=1e-5, winograd=False)


ACTIVATIONS = [
    nn.ReLU(), nn.ReLU6(), nn.Hardswish(), nn.Hardsigmoid(), nn.SiLU(), nn.Sigmoid(), nn.Tanh(),
    nn.GELU(), nn.GELU("tanh"), nn.LeakyReLU(0.1), nn.ELU(0.7), nn.Hardtanh(-0.5, 0.3),
]  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_an_activation_is_done_behind_its_convolution_and_keeps_what_is_not_finite(activation):
    torch.manual_seed(0)
    x = torch.randn(1, 5, 7, 7) * 4
    x[0, 1, 2, 3] = float("nan")
    if not isinstance(activation, nn.GELU):  # eager's gives NaN for infinity
        x[0, 2, 5, 1] = float("inf")
        x[0, 3, 0, 6] = float("-inf")
    engine = check(nn.Sequential(nn.Conv2d(5, 17, 1), activation), x, tolerance=1e-5)
    assert "aten::convolution + aten::" in engine.explain()  # one op
    check(activation, x, tolerance=1e-5)


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("groups", [1, 16])
def test_what_is_not_finite_reaches_what_it_reaches_in_eager(kernel, groups):
    torch.manual_seed(0)
    x = torch.randn(1, 16, 14, 14)
    x[0, 3, 6, 7] = float("inf")
    x[0, 5, 11, 2] = float("nan")
    check(nn.Conv2d(16, 16, kernel, padding=kernel // 2, groups=groups), x)


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("channels", [1, 3, 17])
def test_tiny_images_odd_channels_and_any_batch(batch, size, channels):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(channels, 19, 3, padding=1), nn.BatchNorm2d(19), nn.ReLU(), Residual(19),
        nn.Conv2d(19, 19, 5, padding=2, groups=19), nn.Conv2d(19, 7, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(7, 3),
    )  # fmt: skip
    check(model, torch.randn(batch, channels, size, size))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(8, 12, 3, padding=1)
        self.b = nn.Conv2d(8, 5, 1)
        self.c = nn.Conv2d(25, 9, 1)

    def forward(self, x):
        pieces = torch.cat([F.relu(self.a(x)), self.b(x), x], 1)
        return self.c(pieces), pieces[:, 3:20], pieces


def test_pieces_of_a_concatenation_are_written_in_place():
    torch.manual_seed(0)
    model, x = Branches().eval(), torch.randn(2, 8, 10, 9)
    with torch.no_grad():
        engine = nimble.Nimble(model).prepare(x)
        assert engine.schedule.framework_tasks == 0
        for actual, expected in zip(engine(x), model(x)):
            assert relative_difference(actual, expected) < 1e-5


def test_an_op_without_a_kernel_of_ours_runs_in_the_same_schedule():
    torch.manual_seed(0)

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Sequential(*[Residual(32) for _ in range(6)])
            self.second = nn.Sequential(*[Residual(32) for _ in range(6)])

        def forward(self, x):
            y = torch.cumsum(self.first(x), 3) * 0.1
            return self.second(y)

    model, x = Mixed().eval(), torch.randn(1, 32, 40, 40)
    with torch.no_grad():
        engine = nimble.Nimble(model).prepare(x)
        if engine.schedule.why_framework_kernels == "":  # it is measured
            assert engine.schedule.framework_tasks == 1
        assert relative_difference(engine(x), model(x)) < 1e-4


def small_network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), Residual(16),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
    ).eval()  # fmt: skip


CHANGES = {
    "in place": lambda p: p.add_(0.1),
    "through .data": lambda p: p.data.add_(0.1),
    "through NumPy": lambda p: p.detach().numpy().__iadd__(0.1),
    "copied over": lambda p: p.copy_(p.clone() + 0.1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_next_call_sees_a_changed_parameter(change):
    model, x = small_network(), torch.randn(1, 3, 12, 12)
    with torch.no_grad():
        engine = nimble.Nimble(model).prepare(x)
        for tensor in [*model.parameters(), model[1].running_mean, model[1].running_var]:
            before = engine(x)
            CHANGES[change](tensor)
            assert relative_difference(engine(x), model(x)) < 1e-4
            assert not torch.equal(before, engine(x))


def test_a_loaded_state_dict_is_seen_and_a_replaced_parameter_is_an_error():
    model, other, x = small_network(), small_network(), torch.randn(1, 3, 12, 12)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(0.1)
        engine = nimble.Nimble(model).prepare(x)
        model.load_state_dict(other.state_dict())
        assert relative_difference(engine(x), other(x)) < 1e-4
        model[0].weight = nn.Parameter(torch.zeros_like(model[0].weight))
        with pytest.raises(nimble.NimbleError, match="prepare"):
            engine(x)


def test_calls_from_several_threads_share_weights_that_change_in_between():
    model = small_network()
    inputs = [torch.randn(1, 3, 12, 12) for _ in range(4)]
    with torch.no_grad():
        engine = nimble.Nimble(model).prepare(inputs[0])
        for _ in range(3):
            expected = [model(x) for x in inputs]
            wrong = []

            def work(x, y):
                with torch.no_grad():
                    for _ in range(20):
                        if relative_difference(engine(x), y) > 1e-4:
                            wrong.append(x)

            threads = [threading.Thread(target=work, args=p) for p in zip(inputs, expected)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not wrong
            for p in model.parameters():
                p.mul_(1.1)


def test_equal_layers_with_other_slopes_are_different_ops():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.LayerNorm(24), nn.LeakyReLU(0.1), nn.LayerNorm(24), nn.LeakyReLU(0.7),
        nn.LayerNorm(24), nn.ELU(0.3), nn.LayerNorm(24), nn.ELU(0.9),
    )  # fmt: skip
    check(model, torch.randn(5, 24), tolerance=1e-5)


def test_the_frameworks_kernels_can_be_asked_for():
    model, x = small_network(), torch.randn(1, 3, 12, 12)
    with torch.no_grad():
        engine = nimble.Nimble(model, kernels="torch", streams=1).prepare(x)
        assert engine.schedule.framework_tasks == engine.schedule.tasks
        assert torch.equal(engine(x), model(x))


def test_winograd_is_an_option():
    torch.manual_seed(0)
    model = nn.Conv2d(64, 64, 3, padding=1)
    x = torch.randn(1, 64, 28, 28)
    engine = check(model, x, tolerance=1e-5, winograd=False)
    assert "winograd" not in engine.explain()
    check(model, x, tolerance=1e-3, winograd=True)


def test_outputs_stay_valid_and_inputs_are_untouched():
    model, x = small_network(), torch.randn(1, 3, 12, 12)
    kept = x.clone()
    with torch.no_grad():
        engine = nimble.Nimble(model).prepare(x)
        first = engine(x)
        copy = first.clone()
        engine(x * 2)
        assert torch.equal(first, copy) and torch.equal(x, kept)


def test_an_index_out_of_range_is_an_error_and_the_engine_stays_usable():
    model = nn.Embedding(10, 8).eval()
    indices = torch.tensor([[1, 2, 9]])
    with torch.no_grad():
        engine = nimble.Nimble(model).prepare(indices)
        with pytest.raises(Exception, match="out of range"):
            engine(torch.tensor([[1, 10, 2]]))
        assert torch.equal(engine(indices), model(indices))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("streams", [1, "auto", 2])
def test_any_number_of_threads_and_streams(threads, streams):
    torch.manual_seed(0)
    model = nn.Sequential(*[Residual(24) for _ in range(4)])
    check(model, torch.randn(1, 24, 56, 56), threads=threads, streams=streams)


class SelfAttention(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.project = nn.Linear(48, 144)
        self.norm = nn.LayerNorm(48)
        self.causal = causal

    def forward(self, x):
        q, k, v = (
            t.view(x.shape[0], x.shape[1], 4, 12).transpose(1, 2)
            for t in self.project(self.norm(x)).split(48, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return y.transpose(1, 2).reshape(x.shape) + x


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_one_op(causal):
    torch.manual_seed(0)
    engine = check(SelfAttention(causal), torch.randn(2, 37, 48), tolerance=1e-5)
    assert "attention by" in engine.explain()
