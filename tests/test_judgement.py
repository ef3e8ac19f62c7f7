"""Steps of networks that amplify rounding: our kernels are not given up by chance."""

import pytest
import torch
import trajectories
from torch import nn
from torch.nn import functional as F

import nimble


def deep_network(width=8):
    """Batch norms over few numbers amplify, and so do relus, whose units change sides."""
    layers = []
    for _ in range(8):
        layers += [nn.Conv2d(width, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * 16, 5))


def step_of(optimizer, seed):
    torch.manual_seed(seed)
    model = deep_network()
    batch = torch.randn(3, 8, 4, 4), torch.randint(5, (3,))
    kind, options = trajectories.OPTIMIZERS[optimizer]
    made = kind(model.parameters(), **options, foreach=True)
    return nimble.TrainStep(model, F.cross_entropy, made), batch


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "adagrad"])
def test_right_kernels_are_not_given_up_by_chance(optimizer, seed):
    step, batch = step_of(optimizer, seed)
    for _ in range(2):  # the first makes the optimizer's state
        step(*batch)
    why = step.schedule.why_framework_kernels
    assert not why or "measured faster" in why
