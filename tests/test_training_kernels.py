"""Our own kernels in training: gradients and steps against eager PyTorch."""

import copy

import pytest
import torch
import torchvision
from torch import nn

import nimble


def gradients_of(model):
    """Of the input and all parameters, for a gradient of the result."""
    parameters = list(model.parameters())

    def function(x, gradient):
        x = x.detach().requires_grad_(True)
        return (*torch.autograd.grad(model(x), [x, *parameters], gradient),)

    return function


def conv(inputs, outputs, kernel, stride=1, groups=1, bias=False, dilation=1):
    padding = (kernel - 1) // 2 * dilation
    return nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias)


class FirstToken(nn.Module):
    """As the head of a classifier does."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 6)

    def forward(self, x):
        return self.linear(x)[:, 0].tanh() + self.linear(x)[:, 1:3].sum(1)


torch.manual_seed(0)
BLOCKS = {
    "pointwise": (conv(24, 40, 1), (8, 24, 6, 6)),
    "pointwise, one pixel, bias": (conv(24, 40, 1, bias=True), (8, 24, 1, 1)),
    "3x3": (conv(16, 24, 3), (8, 16, 8, 8)),
    "3x3, bias, odd": (conv(7, 9, 3, bias=True), (3, 7, 5, 7)),
    "strided 3x3": (conv(16, 24, 3, stride=2), (8, 16, 9, 9)),
    "dilated 3x3": (conv(16, 24, 3, dilation=2), (4, 16, 8, 8)),
    "grouped": (conv(16, 24, 3, groups=4), (4, 16, 8, 8)),
    "first layer": (conv(3, 16, 7, stride=2), (4, 3, 16, 16)),
    "depthwise": (conv(24, 24, 3, groups=24), (8, 24, 8, 8)),
    "strided depthwise 5x5": (conv(24, 24, 5, stride=2, groups=24), (8, 24, 8, 8)),
    "relu6 in place": (nn.Sequential(conv(8, 16, 1), nn.ReLU6(inplace=True)), (4, 8, 4, 4)),
    "silu in place": (nn.Sequential(conv(8, 16, 1), nn.SiLU(inplace=True)), (4, 8, 4, 4)),
    "gelu": (nn.Sequential(conv(8, 16, 1), nn.GELU()), (4, 8, 4, 4)),
    "hardswish": (nn.Sequential(conv(8, 16, 1), nn.Hardswish()), (4, 8, 4, 4)),
    "batch norm, relu": (
        nn.Sequential(conv(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU()),
        (4, 8, 6, 6),
    ),
    "batch norm without weights": (
        nn.Sequential(conv(8, 16, 1), nn.BatchNorm2d(16, affine=False)),
        (4, 8, 6, 6),
    ),
    "max pool": (nn.Sequential(conv(8, 16, 1), nn.MaxPool2d(3, 2, 1)), (4, 8, 9, 9)),
    "average pool": (nn.Sequential(conv(8, 16, 1), nn.AvgPool2d(3, 2, 1)), (4, 8, 9, 9)),
    "linear": (nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 5)), (6, 24)),
    "layer norm": (nn.Sequential(nn.Linear(24, 33), nn.LayerNorm(33)), (3, 5, 24)),
    "layer norm, batch of 1": (nn.Sequential(nn.Linear(7, 9), nn.LayerNorm(9)), (1, 7)),
    "layer norm over two dims, no weights": (
        nn.Sequential(nn.Linear(8, 6), nn.LayerNorm((5, 6), elementwise_affine=False)),
        (4, 5, 8),
    ),
    "first token": (FirstToken(), (3, 5, 8)),
    "inverted residual": (
        torchvision.models.mobilenetv2.InvertedResidual(16, 16, 1, 6),
        (8, 16, 8, 8),
    ),
    "bottleneck": (torchvision.models.resnet.Bottleneck(64, 16), (8, 64, 8, 8)),
}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("streams", [1, 2])
def test_gradients_of_a_block_equal_eager_on_other_values(name, streams):
    model, shape = BLOCKS[name]
    torch.manual_seed(0)
    model = copy.deepcopy(model).train()
    function = gradients_of(model)
    x = torch.randn(shape)
    gradient = torch.randn_like(model(x))
    engine = nimble.record(function, x, gradient, streams=streams)
    x, gradient = torch.randn_like(x), torch.randn_like(gradient)
    eager = copy.deepcopy(model)
    exact = gradients_of(copy.deepcopy(model).double())(x.double(), gradient.double())
    found = engine(x, gradient)
    expected = gradients_of(eager)(x, gradient)
    # Winograd's algorithm may be used for the gradient of an input. Gradients that nearly cancel out
    # are not more exact in eager.
    for ours, theirs, right in zip(found, expected, exact):
        error, eager_error = ((t - right).abs().max().item() for t in (ours, theirs))
        assert error <= max(1e-3 * right.abs().max().item(), 8 * eager_error)
    for ours, theirs in zip(model.state_dict().values(), eager.state_dict().values()):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert engine.schedule.verify() == []


@pytest.mark.parametrize("padding", [None, 3])
def test_gradient_of_an_embedding_equals_eager_on_other_indices(padding):
    torch.manual_seed(0)
    table = nn.Embedding(11, 24, padding_idx=padding)
    norm = nn.LayerNorm(24)

    def function(ids, gradient):
        return torch.autograd.grad(norm(table(ids)), [table.weight, norm.weight], gradient)

    engine = nimble.record(function, torch.randint(11, (4, 6)), torch.randn(4, 6, 24))
    ids, gradient = torch.randint(11, (4, 6)), torch.randn(4, 6, 24)
    for ours, theirs in zip(engine(ids, gradient), function(ids, gradient)):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def small_network():
    torch.manual_seed(0)
    return nn.Sequential(
        conv(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU6(inplace=True),
        conv(16, 16, 3, groups=16), nn.BatchNorm2d(16), nn.SiLU(inplace=True),
        conv(16, 32, 1, bias=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 16, 10),
    )  # fmt: skip


@pytest.mark.parametrize("make_optimizer", [
    lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=1e-4),
    lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, foreach=True),
    lambda p: torch.optim.AdamW(p, lr=1e-3),
], ids=["sgd", "nesterov", "adamw"])  # fmt: skip
def test_steps_follow_eager(make_optimizer):
    ours, eager = small_network(), small_network()
    optimizers = [make_optimizer(m.parameters()) for m in (ours, eager)]
    schedulers = [torch.optim.lr_scheduler.CosineAnnealingLR(o, 12) for o in optimizers]
    step = nimble.TrainStep(ours, nn.functional.cross_entropy, optimizers[0])
    for i in range(12):
        torch.manual_seed(i)
        x, y = torch.randn(16, 3, 16, 16), torch.randint(10, (16,))
        loss = step(x, y)
        optimizers[1].zero_grad()
        expected = nn.functional.cross_entropy(eager(x), y)
        expected.backward()
        optimizers[1].step()
        for scheduler in schedulers:
            scheduler.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-3, atol=1e-3)
    assert step.schedule.why_framework_kernels == "", "our kernels are used"
    for (name, a), b in zip(ours.state_dict().items(), eager.state_dict().values()):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=2e-3, msg=lambda m, n=name: f"{n}: {m}")
