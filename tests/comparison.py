"""Tests that hold for the framework's kernels, bit for bit, and for ours, up to rounding.

    from comparison import exact, kernels  # noqa: F401
"""

import pytest
import torch

import nimble.engine

_tolerance = {}


@pytest.fixture(params=["torch", "auto"], autouse=True)
def kernels(request, monkeypatch):
    """Every test of the module runs with each instead of the option's default."""
    init = nimble.engine.Options.__init__

    def with_kernels(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.native &= request.param == "auto"

    monkeypatch.setattr(nimble.engine.Options, "__init__", with_kernels)
    _tolerance.update(
        {"rtol": 0, "atol": 0} if request.param == "torch" else {"rtol": 1e-4, "atol": 1e-5}
    )
    return request.param


def exact(actual, expected, **options):
    """Equal to the last bit, NaN to NaN; up to rounding where our kernels are the default."""
    torch.testing.assert_close(actual, expected, equal_nan=True, **_tolerance, **options)
