"""The paper's ten networks: a replay on new values is what eager gives, and the plan is the paper's.

The small images keep a run short; `-m long` takes the paper's image sizes.
"""

from functools import lru_cache

import nimble
import pytest
import torch
from nimble import models

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"inception_v3": 107}  # others: 64
PLANS = {
    "one stream": {"streams": 1, "kernels": "torch"},
    "two streams": {"streams": 2, "kernels": "torch"},
    "auto": {"threads": 2},  # so that it may take two streams
    "without Winograd": {"threads": 2, "winograd": False},
}
# Relative to the largest output; bit for bit on one stream with the framework's kernels. Eager itself
# moves by 2e-4 on ResNet-101 when it sums in another order.
TOLERANCE = {"one stream": 0, "two streams": 1e-4, "auto": 1e-3, "without Winograd": 5e-4}

# Degree of logical concurrency and waits of the logical streams, recorded from this engine.
#
# The paper has a degree of 6, 7, 11, 12 and 15. The two NASNets differ from it not by their ops
# (the paper's authors' own definitions of them give 13 and 16 here as well) but because NASNet-A's
# normal cell adds the average pool of its second input to itself: two ops, recorded as written. In
# the widest part of the network two such cells overlap. TorchScript, on which the paper's engine
# is built, merges equal ops before streams are assigned: with both pairs merged the degree is 11
# and 14, with one pair (that of the cell that does not follow a reduction) it is the paper's 12 and
# 15. Folding batch norms or ReLUs changes none of these numbers.
CONCURRENCY = {
    "inception_v3": (6, 70),
    "darts": (7, 134),
    "amoebanet": (11, 196),
    "nasnet_a_mobile": (13, 244),
    "nasnet_a_large": (16, 334),
}


@lru_cache(maxsize=1)  # the tests of a network follow one another
def build(name):
    return models.network(name).build()


def image(size, seed):
    return torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(seed))


def check(name, size, plan):
    model = build(name)
    engine = nimble.Nimble(model, **PLANS[plan]).prepare(image(size, seed=1))
    assert engine.schedule.verify() == []
    if plan == "two streams":
        assert engine.schedule.streams == min(2, engine.schedule.degree)
    if "kernels" not in PLANS[plan]:
        assert engine.schedule.framework_tasks == 0, engine.schedule.why_framework_kernels
    for seed in (2, 3):
        x = image(size, seed)
        with torch.no_grad():
            expected = model(x)
        y = engine(x)
        assert (y - expected).abs().max() <= TOLERANCE[plan] * expected.abs().max()


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", models.NETWORKS)
def test_replay_equals_eager(name, plan):
    check(name, SMALL.get(name, 64), plan)


@pytest.mark.long
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", models.NETWORKS)
def test_replay_equals_eager_at_the_papers_size(name, plan):
    check(name, models.network(name).image_size, plan)


@pytest.mark.parametrize("name", CONCURRENCY)
def test_degree_of_concurrency(name):
    x = image(SMALL.get(name, 64), seed=1)
    schedule = nimble.Nimble(build(name), streams=1, kernels="torch").prepare(x).schedule
    assert (schedule.degree, schedule.logical_waits) == CONCURRENCY[name]
    assert schedule.logical_streams == schedule.degree
