"""The commands of `nimble`, run as a user runs them."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.serial


def nimble(*arguments):
    return subprocess.run(
        [Path(sys.executable).with_name("nimble"), *arguments], capture_output=True, text=True
    )


def test_demo_agrees_with_eager():
    run = nimble("demo", "mobilenet_v2", "--rounds", "2")
    assert run.returncode == 0, run.stdout + run.stderr
    for name in ("eager", "one stream", "many streams"):
        assert f"  {name} " in run.stdout
    assert "proven free of races" in run.stdout


def test_an_unknown_network_is_refused_with_the_names_of_those_there_are():
    run = nimble("demo", "resnet5000")
    assert run.returncode == 2
    assert "mobilenet_v2" in run.stderr
    assert "Traceback" not in run.stderr


def test_inspect_shows_the_concurrency_and_memory_of_a_step_of_training():
    run = nimble("inspect", "--train", "mlp@8")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "| step of training | degree: forward | backward | step | waits |" in run.stdout
    assert "\n| mlp@8 | 1 | " in run.stdout
    assert "proven free of races" in run.stdout


def test_inspect_refuses_an_unknown_name_with_those_there_are():
    for options in ([], ["--train"]):
        run = nimble("inspect", *options, "resnet5000")
        assert run.returncode == 2
        assert "mobilenet_v2" in run.stderr
        assert "Traceback" not in run.stderr


def test_doctor_says_what_there_is():
    run = nimble("doctor", "mobilenet_v2", "--rounds", "1")
    assert run.returncode == 0, run.stdout + run.stderr
    for fact in ("PyTorch ", "instruction sets: ", "CUDA: "):
        assert fact in run.stdout
