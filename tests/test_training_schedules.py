"""A cosine schedule of the learning rate over 100 steps gives eager's trajectory."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nimble

pytestmark = pytest.mark.usefixtures("one_thread")
STEPS = 100


def mlp():
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)), (8, 12)


def cnn():
    # A bias in front of a batch norm has a gradient that is nothing but rounding.
    layers = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    layers += [nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 9, 4)]
    return nn.Sequential(*layers), (8, 3, 8, 8)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=5e-4)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def trajectory(make_model, make_optimizer, make_step):
    """All losses, and the parameters at the end."""
    torch.manual_seed(0)
    model, shape = make_model()
    optimizer = make_optimizer(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    step = make_step(model, optimizer)
    losses = []
    for _ in range(STEPS):
        losses.append(step(torch.randn(shape), torch.randint(4, shape[:1])))
        schedule.step()
    return torch.stack(losses), model.state_dict()


def eager(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.mark.parametrize("make_optimizer", [sgd, adamw])
@pytest.mark.parametrize("make_model", [mlp, cnn])
@pytest.mark.parametrize(
    "options, tolerance",
    [({"kernels": "torch", "streams": 1}, 0), ({"kernels": "auto"}, 1e-3)],
    ids=["torch", "auto"],
)
def test_trajectory_is_eagers(make_model, make_optimizer, options, tolerance):
    step = lambda model, optimizer: nimble.TrainStep(model, F.cross_entropy, optimizer, **options)
    ours = trajectory(make_model, make_optimizer, step)
    expected = trajectory(make_model, make_optimizer, eager)
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)
