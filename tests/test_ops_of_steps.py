"""Each op of a real step by itself, our kernel against double precision; see ops_of_step.py."""

import ops_of_step
import pytest
import torch

SMALL = ["mlp@32", "trajectories:conv_net", "trajectories:small_bert"]
LARGE = ["mobilenet_v2@8", "efficientnet_b0@8", "resnet50@8", "trajectories:bert_two_layers"]


def check(name, at_least):
    verdicts = ops_of_step.verdicts_of(name)
    assert len(verdicts) >= at_least, "ops that kernels of ours compute"
    assert [v for v in verdicts if not v.exact_enough] == []


@pytest.mark.parametrize("name", SMALL)
def test_kernels_are_as_exact_as_eagers(name):
    check(name, 15)


@pytest.mark.long
@pytest.mark.parametrize("name", LARGE)
def test_kernels_of_large_networks_are_as_exact_as_eagers(name):
    check(name, 50)


def test_a_small_fault_is_found():
    """One number of a result that is off by 1e-5 of the largest one."""
    torch.manual_seed(0)
    x = torch.randn(64)
    right = x.double().sin()
    fault = right.float()
    fault[3] += 1e-5
    found, eager = (ops_of_step.error(t, right) for t in (fault, right.float()))
    assert eager < 1e-7 < found
    assert not ops_of_step.Verdict("sin", [[64]], found, eager, winograd=False).exact_enough
