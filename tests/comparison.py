"""Tests that hold for the framework's kernels, bit for bit, and for ours, up to rounding.

    from comparison import exact, kernels  # noqa: F401
"""

import pytest
import torch

import nimble.engine

_tolerance = {}


@pytest.fixture(params=["torch", "auto"], autouse=True)
def kernels(request, monkeypatch):
    """Every test of the module runs with each as the default of the option `kernels`."""
    defaults = list(nimble.engine.Options.__init__.__defaults__)
    defaults[defaults.index("auto", 1)] = request.param
    monkeypatch.setattr(nimble.engine.Options.__init__, "__defaults__", tuple(defaults))
    _tolerance.update(
        {"rtol": 0, "atol": 0} if request.param == "torch" else {"rtol": 1e-4, "atol": 1e-5}
    )
    return request.param


def exact(actual, expected):
    """Equal to the last bit, NaN to NaN; up to rounding where our kernels are the default."""
    torch.testing.assert_close(actual, expected, equal_nan=True, **_tolerance)
