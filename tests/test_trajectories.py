"""Training strays from eager no further than rounding takes it; see trajectories.py.

A few steps of small networks with every optimizer; `-m long`: all networks, and more steps.
"""

import pytest
import trajectories
from trajectories import FORMS, OPTIMIZERS, Distance

SMALL = {"mlp@32": 12, "lstm@32": 6, "trajectories:conv_net": 8}
LARGE = {
    "mobilenet_v2@8": 0.01,
    "efficientnet_b0@8": 0.01,
    "resnet50@8": 0.01,
    "trajectories:bert_two_layers": 0.1,
}
THREADS = 2


def check(name, optimizer, steps, forms=tuple(FORMS), rate=1.0):
    tasks = trajectories.tasks_of(name, optimizer, steps, rate, forms)
    row, fault = trajectories.row_of(optimizer, tasks, THREADS)
    assert not fault, row


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", SMALL)
def test_a_few_steps_follow_eager(name, optimizer):
    check(name, optimizer, SMALL[name])


@pytest.mark.long
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", SMALL)
def test_many_steps_follow_eager(name, optimizer):
    check(name, optimizer, 50)


@pytest.mark.long
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", LARGE)
def test_large_networks_follow_eager(name, optimizer):
    check(name, optimizer, 10, ("foreach",), LARGE[name])


def test_straying_further_than_the_yardstick_is_a_fault():
    yardstick = Distance(1e-5, 1e-2, (1e-2, 1e-2))
    assert not trajectories.strays(Distance(5e-4, 3e-2, (1e-3, 3e-2)), yardstick)
    assert trajectories.strays(Distance(2e-3, 1e-2, (1e-2, 1e-2)), yardstick)
    assert trajectories.strays(Distance(1e-5, 1e-2, (1e-2, 5e-2)), yardstick)
    assert trajectories.strays(Distance(float("nan"), 0.0, (0.0, 0.0)), yardstick)


def test_a_wrong_step_is_a_fault():
    """A learning rate that is off by a hundredth."""
    task = trajectories.tasks_of("mlp@32", "adam", 5)["plain"]
    reference = trajectories.run(task, THREADS)
    task.options["lr"] *= 1.01
    wrong = trajectories.run(task, THREADS)
    assert not trajectories.equal(wrong, reference)
    apart = trajectories.distance(wrong, reference)
    assert trajectories.strays(apart, Distance(0.0, 0.0, (0.0, 0.0)))
