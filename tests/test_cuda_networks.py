"""Networks on the fake CUDA runtime: every plan is a graph that was proven free of races.

`-m long` takes the paper's ten networks, BERT and ViT; tests/cuda_networks.py prints the figures.
"""

import pytest
from cuda_networks import NETWORKS, RULES, capture
from fake_cuda import missing
from nimble import _C

WHY_NOT = missing() or _C.why_no_cuda()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT))

QUICK = ["lstm"]
# What does not depend on the memory rule, of inference on eight streams: nodes, waits.
PLANS = {"mobilenet_v2": (151, 0), "nasnet_a_mobile": (934, 212), "efficientnet_b5": (655, 0)}


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in NETWORKS],
)
def test_network_is_captured_without_races(name, training):
    found = capture(name, training)
    one, clock, keep = (found[rule] for rule in RULES)
    for plan in found.values():
        assert plan["faults"] == []
        assert plan["tasks"] == one["tasks"]
        assert plan["nodes"] == one["nodes"]  # no op lost, none issued twice
    assert one["streams"] == 1 and one["waits"] == 0
    assert 1 <= clock["streams"] <= 8
    assert clock["waits"] == keep["waits"]
    assert one["pool"] <= clock["pool"] <= keep["pool"]
    assert clock["graphs"] == (2 if training else 1)  # SGD's learning rate is given between them
    if name in PLANS and not training:
        assert (clock["nodes"], clock["waits"]) == PLANS[name]
