"""The example that trains on digits reaches eager's accuracy."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
EXAMPLE = Path(__file__).parents[1] / "examples" / "train_digits.py"


def test_the_same_seed_gives_eagers_accuracy():
    run = subprocess.run(
        [sys.executable, EXAMPLE, "--epochs", "3"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    found = dict(re.findall(r"^(\w+) +test accuracy ([\d.]+)", run.stdout, re.M))
    assert found["nimble"] == found["eager"]
    assert float(found["nimble"]) > 0.9
